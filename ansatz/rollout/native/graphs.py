"""CUDA graphs of decode steps: captured once per shape, then replayed.

On a GPU, launching kernels bounds the decode step of a small model. A graph launches all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Work = Callable[[], None]
Capture = Callable[[Work], Work]
"""Does the work, captures it, and returns a function that does it again on the same memory."""


class StepGraph:
    """Runs the work of the decode steps of one `generate` call. While the shape stays the same, the tensors that the
    work reads and changes must not move.

    A shape is captured the second time in a row that it occurs. Few shapes occur, because rows and spans are rounded up
    to multiples.
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self._shape: tuple[int, ...] | None = None
        self._replay: Work | None = None

    def __call__(self, shape: tuple[int, ...], work: Work) -> None:
        if shape != self._shape:  # drop the old graph first: without this, both graphs hold memory at the same time
            self._shape, self._replay = shape, None
            work()
        elif self._replay is None:
            self._replay = self.capture(work)
        else:
            self._replay()


def capture_graph(work: Work) -> Work:
    """Do the work, and capture it as a CUDA graph.

    It is done on the graph's stream, because libraries initialise themselves when they are first used on a stream, and
    the capture itself does nothing. Other threads may use the GPU meanwhile, as the grader does for a learned reward.
    """
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        work()
    return graph.replay
