"""A decode step recorded once for each shape and played again: on a GPU a small model's step is bound by launches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ansatz.rollout.native.cache import SlotCache, WriteIndex
from ansatz.rollout.native.forward import Step

Record = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""Does the work once and returns what does it again, on the memory that the work has read and written."""


class GraphedStep:
    """A step for the calls of one batch: weights and cache must stay where they are while the shapes do.

    What comes for the second time, as many rows on a cache in the same place, is recorded; there are few such, since
    rows and spans are filled up to multiples. What it returns is overwritten by the next call.
    """

    def __init__(self, step: Step, record: Record) -> None:
        self.step, self.record = step, record
        self._shape: tuple[int, ...] | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._replay: Callable[[], Tensor] | None = None

    def __call__(self, token_B: Tensor, position_B: Tensor, cache: SlotCache, mask_B11X: Tensor) -> Tensor:
        given = (token_B, position_B, mask_B11X, *cache.where)
        shape = len(token_B), cache.moves, cache.longest
        if shape != self._shape:  # the memory of another shape is not held while this one takes its own
            self._shape, self._replay, self._inputs = shape, None, ()
            return self.step(token_B, position_B, cache, mask_B11X)
        if self._replay is None:
            self._inputs = tuple(value.clone() for value in given)
            token_B, position_B, mask_B11X, *where = self._inputs

            def work() -> Tensor:
                cache.where = WriteIndex(*where)
                return self.step(token_B, position_B, cache, mask_B11X)

            self._replay = self.record(work)
        for held, value in zip(self._inputs, given, strict=True):
            held.copy_(value)
        return self._replay()


def record_graph(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A CUDA graph; it has its results after a replay only. The work is done once on the graph's stream before, since
    libraries set themselves up for a stream when they are first used on it; other threads may meanwhile use the GPU,
    as the grader does for a learned reward."""
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
