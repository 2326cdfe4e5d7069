"""The work of a call in CPU time, which does not depend on the load of the machine, and a machine with much load."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def least_cpu_s(call: Callable[[], object], *, enough_s: float = 0.0) -> float:
    """The least CPU seconds of this thread in three calls, or in fewer if one takes less than enough_s."""
    least_s = float("inf")
    for _ in range(3):
        begin = time.thread_time()
        call()
        least_s = min(least_s, time.thread_time() - begin)
        if least_s < enough_s:
            break
    return least_s


@contextmanager
def busy_machine() -> Iterator[None]:
    """Keep four processes busy for each processor that this one may use, within the block."""
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(4 * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
