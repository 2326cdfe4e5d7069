"""CUDA graphs of decode steps: captured once per shape, then replayed.

On a GPU, launching kernels bounds the decode step of a small model. A graph launches all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ansatz.rollout.native.cache import SlotCache, WriteIndex
from ansatz.rollout.native.forward import DecodeStep

Capture = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""Captures work and returns a function that replays it on the same memory."""


class GraphedStep:
    """A decode step for the steps of one `generate` call. While the shapes stay the same, weights and cache must not
    move.

    A shape (number of rows, place and length of the cache) is captured the second time it occurs. Few shapes occur,
    because rows and spans are rounded up to multiples. The next call overwrites the tensor that a call returned.
    """

    def __init__(self, step: DecodeStep, capture: Capture) -> None:
        self.step, self.capture = step, capture
        self._shape: tuple[int, ...] | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._replay: Callable[[], Tensor] | None = None

    def __call__(self, token_B: Tensor, position_B: Tensor, cache: SlotCache, mask_B11X: Tensor) -> Tensor:
        inputs = (token_B, position_B, mask_B11X, *cache.write_index)
        shape = len(token_B), cache.reallocations, cache.position_bound
        if shape != self._shape:  # drop the old graph first: without this, both graphs hold memory at the same time
            self._shape, self._replay, self._inputs = shape, None, ()
            return self.step(token_B, position_B, cache, mask_B11X)
        if self._replay is None:
            self._inputs = tuple(value.clone() for value in inputs)
            token_B, position_B, mask_B11X, *write_index = self._inputs

            def work() -> Tensor:
                cache.write_index = WriteIndex(*write_index)
                return self.step(token_B, position_B, cache, mask_B11X)

            self._replay = self.capture(work)
        for captured, value in zip(self._inputs, inputs, strict=True):
            captured.copy_(value)
        return self._replay()


def capture_graph(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
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

    def replay() -> Tensor:
        graph.replay()
        return out

    return replay
