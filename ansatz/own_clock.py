"""The time that this process was able to run, for limits in wall time whose expiry changes results.

SIGSTOP, a paused container or a sleeping machine stops a process in the middle of a call, while the clock of the
machine may go on. A limit of 5 s would then end the call of an environment that needed 0.1 s, and the run would learn
from other observations. A thread therefore looks at the clock twenty times a second. If it comes much too late, the
process was stopped, and the time between does not count. A thread that waits for Python's lock comes late too, but
wakes up every few milliseconds: a call that keeps the lock is ended by its limit as before.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

_TICK_S = 0.05
_GAP_S = 0.25
"""A gap between two ticks that is as long as this, or longer, does not count."""
_STOP_S = 1.0
"""A gap of this length is reported. Time that the process spent ready to run while others ran is subtracted first."""


class _OwnClock:
    """last: when the process was last seen running. switches: how often its ticking thread had given the processor up
    until then."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a handler of signals may interrupt a call and ask for the time, too
        self._last, self._stopped_s, self._switches = time.monotonic(), 0.0, 0
        self._stops: list[float] = []
        self._thread: threading.Thread | None = None

    def now(self) -> float:
        with self._lock:
            if self._thread is None:
                self._last = time.monotonic()
                self._thread = threading.Thread(target=self._run, name="own clock", daemon=True)
                self._thread.start()
            return self._look() - self._stopped_s

    def take_stops(self) -> list[float]:
        with self._lock:
            self.now()
            stops, self._stops = self._stops, []
            return stops

    def _run(self) -> None:
        ticked_at, waited_s = time.monotonic(), _read_waited_s()
        while True:
            with self._lock:
                gap_s = self._look() - ticked_at
                stopped_s = gap_s - (_read_waited_s() - waited_s)
                if stopped_s >= _STOP_S and not self._has_waited_for_python(gap_s):
                    self._stops.append(stopped_s)
                ticked_at, waited_s = time.monotonic(), _read_waited_s()
                self._last, self._switches = ticked_at, _switches_of_this_thread()
            time.sleep(_TICK_S)

    def _look(self) -> float:
        """Return the time of the machine, after a gap since the last tick has been noted."""
        now = time.monotonic()
        if (gap_s := now - self._last) >= _GAP_S and not self._has_waited_for_python(gap_s):
            self._stopped_s += gap_s
            self._last, self._switches = now, self._switches_of_thread()
        return now

    def _has_waited_for_python(self, gap_s: float) -> bool:
        return (self._switches_of_thread() - self._switches) * sys.getswitchinterval() > gap_s / 4

    def _switches_of_thread(self) -> int:
        if self._thread is None or self._thread is threading.current_thread():
            return _switches_of_this_thread()
        try:
            text = Path(f"/proc/self/task/{self._thread.native_id}/status").read_text(encoding="utf-8")
        except OSError:  # not Linux
            return self._switches
        return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def _switches_of_this_thread() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw if hasattr(resource, "RUSAGE_THREAD") else 0


def _read_waited_s() -> float:
    """Return how many seconds this thread was ready to run while others ran; 0 where the kernel does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="utf-8").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


_clock = _OwnClock()


def _begin_anew() -> None:
    """Start another clock in a fork, which has no thread that ticks."""
    global _clock
    _clock = _OwnClock()


os.register_at_fork(after_in_child=_begin_anew)


def now() -> float:
    """Return the seconds that this process could run, from an arbitrary begin. It is `time.monotonic` without gaps."""
    return _clock.now()


def take_stops() -> list[float]:
    """Return the lengths, in seconds, of the stops of a second and more that have not been taken yet.

    They are noticed from the first call of this module on, a moment after each has ended.
    """
    return _clock.take_stops()


class Deadline:
    """The moment when this process will have been able to run for `limit_s` seconds from now on. None means never.

    >>> deadline = Deadline(5.0)
    >>> deadline.is_over(), 4.0 < deadline.left_s <= 5.0
    (False, True)
    """

    def __init__(self, limit_s: float | None) -> None:
        self._end = None if limit_s is None else now() + limit_s

    @property
    def left_s(self) -> float | None:
        """The seconds that are left, at least 0. A wait of this length can be too short: ask `is_over` after
        it."""
        return None if self._end is None else max(self._end - now(), 0.0)

    def is_over(self) -> bool:
        return self.left_s == 0.0


class TimeLimit:
    """Ends a block with TimeoutError, as `asyncio.timeout` does, once this process could run for limit_s seconds.

    None: from a call of `start` on.
    """

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s, self._timeout = limit_s, asyncio.timeout(None)
        self._look_again: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> TimeLimit:
        await self._timeout.__aenter__()
        if self._limit_s is not None:
            self.start(self._limit_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        if self._look_again is not None:
            self._look_again.cancel()
        return await self._timeout.__aexit__(kind, error, at)

    def start(self, limit_s: float) -> None:
        """Start the limit, unless it has been started."""
        if self._look_again is None:
            self._wait(Deadline(limit_s), limit_s)

    def _wait(self, deadline: Deadline, left_s: float) -> None:
        self._look_again = asyncio.get_running_loop().call_later(left_s, self._look, deadline)

    def _look(self, deadline: Deadline) -> None:
        if left_s := deadline.left_s:
            self._wait(deadline, left_s)
        else:
            self._timeout.reschedule(asyncio.get_running_loop().time())
