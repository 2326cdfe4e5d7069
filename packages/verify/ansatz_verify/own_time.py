"""The time that another process uses, whatever else the machine does: running or sleeping, not waiting for a processor.

A limit in wall time depends on the load of the machine, so that the same program passes or fails by chance, and one in
CPU time never ends a program that sleeps. Linux counts the nanoseconds that a thread has run and has waited for a
processor (/proc/PID/schedstat). Wall time without that wait is the same on an idle and on a busy machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

clock: Callable[[], float] = time.monotonic
"""The clock of all limits. Whoever can be stopped in the middle of a call sets one that leaves this time out."""
_PROC = Path("/proc")
_LOOK_AGAIN_S = 0.02  # a wait for a processor is counted only when it ends


class OwnTime:
    """A limit on the own time of a process, from now on. Its main thread counts. Wall time where it cannot be read."""

    def __init__(self, pid: int, limit_s: float) -> None:
        self._folder, self._limit_s = _PROC / str(pid), limit_s
        self._begin_s = clock()
        self._ran_s, self._waited_s = self._read_counts() or (0.0, 0.0)

    def is_over(self) -> bool:
        """Return whether the process has used its time."""
        wall_s = clock() - self._begin_s
        if wall_s < self._limit_s:
            return False
        if (counted := self._read_counts()) is None:
            return True
        if counted[0] - self._ran_s >= self._limit_s:
            return True
        # A process that is ready to run can be waiting at this moment, which the count does not say yet.
        return wall_s - (counted[1] - self._waited_s) >= self._limit_s and not self._is_ready_to_run()

    def used_s(self) -> float:
        """Return the seconds that the process has used."""
        counted = self._read_counts()
        waited_s = counted[1] - self._waited_s if counted else 0.0
        return max(clock() - self._begin_s - waited_s, 0.0)

    def patience_s(self) -> float:
        """Return how long to wait before `is_over` can change."""
        return max(self._limit_s - (clock() - self._begin_s), _LOOK_AGAIN_S)

    def _read_counts(self) -> tuple[float, float] | None:
        """Return the seconds that the process has run, and has waited for a processor, in all."""
        try:
            ran, waited, _ = (self._folder / "schedstat").read_text().split()
        except (OSError, ValueError):
            return None
        return int(ran) / 1e9, int(waited) / 1e9

    def _is_ready_to_run(self) -> bool:
        try:
            return (self._folder / "stat").read_text().rpartition(")")[2].split()[0] == "R"
        except (OSError, IndexError):
            return False
