"""CPU threads: several pieces of work in parallel with one thread each, or one piece of work with all threads.

The operations of a small model are short, and two threads per operation spend most of their time waiting for each
other. One thread per microbatch took half the time, and another process on the machine slows it down less. A model of
135 M weights still gains a seventh in float32. In bfloat16 it loses a fifth.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

SMALL_MODEL = 2**24
"""Models with fewer parameters are small: one operation is not enough work for several threads."""
PARALLEL_GRADIENTS = 2**29
"""Microbatches of a larger model run in parallel only in float32, and if their gradients have at most this many values
together, which take 2 GiB."""


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(count: int) -> None:
    """Use `count` threads; 0: as many as the process may use. Bit-identical repetition needs the same number."""
    torch.set_num_threads(count or usable_cores())


def parallel_microbatches(num_parameters: int, *, dtype_bytes: int, on_cpu: bool, threads: int) -> int:
    """Return how many microbatches of a step run in parallel on a CPU: one per thread, if the model is small or, in
    float32, if their gradients fit `PARALLEL_GRADIENTS`. Otherwise one, which has all threads and all memory to
    itself."""
    fits = num_parameters < SMALL_MODEL or (dtype_bytes == 4 and num_parameters * threads <= PARALLEL_GRADIENTS)
    return threads if on_cpu and fits else 1


def tokens_of_each(limit: int, num_parameters: int, parallel: int) -> int:
    """Return the largest number of tokens of each microbatch. Parallel microbatches of a larger model share the limit,
    because their activations fill most of the memory."""
    return limit if num_parameters < SMALL_MODEL else max(1, limit // parallel)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run each operation on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def parallel_map(work: Callable[[_Item], _Result], items: Sequence[_Item], width: int) -> Iterator[_Result]:
    """Yield work(item) of each item in order, with `width` items at a time and one thread each. A single item has all
    threads.

    At most `width` + 1 results are in progress or not yet taken, so results do not pile up.
    """
    width = min(width, len(items))
    if width <= 1:
        yield from map(work, items)
        return
    pending = deque[Future[_Result]]()
    with one_thread():
        try:
            for item in items:
                if len(pending) > width:
                    yield pending.popleft().result()
                pending.append(_pool(width).submit(work, item))
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
            wait(pending)


@cache
def _pool(width: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(width, thread_name_prefix="microbatch", initializer=torch.set_num_threads, initargs=(1,))
