"""CUDA graphs of decode steps: captured once per shape, then replayed.

On a GPU, launching kernels bounds the decode step of a small model. A graph launches all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Work = Callable[[], tuple[Tensor, ...]]
Capture = Callable[[Work], Work]
"""Captures work and returns a function that replays it on the same memory."""


class StepGraph:
    """Runs the work of the decode steps of one `generate` call. While the shape stays the same, the tensors that the
    work reads must not move.

    A shape is captured the second time in a row that it occurs. Few shapes occur, because rows and spans are rounded up
    to multiples. The next call overwrites the tensors that a call returned.
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self._shape: tuple[int, ...] | None = None
        self._replay: Work | None = None

    def __call__(self, shape: tuple[int, ...], work: Work) -> tuple[Tensor, ...]:
        if shape != self._shape:  # drop the old graph first: without this, both graphs hold memory at the same time
            self._shape, self._replay = shape, None
            return work()
        if self._replay is None:
            self._replay = self.capture(work)
        return self._replay()


def capture_graph(work: Work) -> Work:
    """Capture work as a CUDA graph. The result is valid only after a replay.

    The work runs once on the graph's stream before the capture, because libraries initialise themselves when they are
    first used on a stream. Other threads may use the GPU during the capture, as the grader does for a learned reward.
    """
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        out = work()

    def replay() -> tuple[Tensor, ...]:
        graph.replay()
        return out

    return replay
