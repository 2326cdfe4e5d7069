"""CPU threads: several slices of work side by side, one thread each, or one piece of work with all of them.

The operations of a small model are short, and two threads on each of them spend most of their time on meeting: one
thread a slice took half the time (docs/experiments/LOG.md), and does not mind another process on the machine.
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
"""Parameters from which on a single operation is work enough for several threads."""


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(count: int) -> None:
    """Use `count` threads; 0: as many as the process may use. Bit-identical repetition needs the same number."""
    torch.set_num_threads(count or usable_cores())


def parallel_microbatches(num_parameters: int, *, on_cpu: bool, threads: int) -> int:
    """How many slices of a step go side by side: as many as there are threads for a small model on a CPU, else one,
    which then has all threads and is the only one to take memory."""
    return threads if on_cpu and num_parameters < SMALL_MODEL else 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Operations on one thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def parallel_map(work: Callable[[_Item], _Result], items: Sequence[_Item], width: int) -> Iterator[_Result]:
    """work(item) of each in order, `width` at a time with one thread each; one item alone has all threads.

    No more than `width` + 1 are begun or done and not yet taken, so that results do not pile up.
    """
    width = min(width, len(items))
    if width <= 1:
        yield from map(work, items)
        return
    ahead = deque[Future[_Result]]()
    with one_thread():
        try:
            for item in items:
                if len(ahead) > width:
                    yield ahead.popleft().result()
                ahead.append(_pool(width).submit(work, item))
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
            wait(ahead)


@cache
def _pool(width: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(width, thread_name_prefix="slice", initializer=torch.set_num_threads, initargs=(1,))
