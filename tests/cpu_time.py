"""The work of a call in CPU time, which does not depend on the load of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable


def least_cpu_s(call: Callable[[], object]) -> float:
    """The least CPU seconds of this thread in three calls."""
    times = list[float]()
    for _ in range(3):
        begin = time.thread_time()
        call()
        times.append(time.thread_time() - begin)
    return min(times)
