"""Notices that a run with workers has come to a standstill, says who waits for whom, and ends the run."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable

from ansatz import own_clock
from ansatz.visible import say


class StallWatch:
    """stall_s: without `progress` for this long, `describe()` and the stacks of all threads are printed to stderr.

    After twice this time the process gets SIGTERM, once: the run then saves if possible, and ends, as after any signal.
    Example: `StallWatch(600.0, lambda: "ticket 3 waits for worker w-1")`.
    """

    def __init__(self, stall_s: float, describe: Callable[[], str]) -> None:
        self._stall_s, self._describe = stall_s, describe
        self._last, self._closed = own_clock.now(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall", daemon=True)
        self._thread.start()

    def progress(self) -> None:
        """Note that something has landed, or that the trainer has made or repeated an update."""
        self._last = own_clock.now()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        reported_at = -1.0
        while not self._closed.wait(min(1.0, self._stall_s / 10)):
            last = self._last
            quiet_s = own_clock.now() - last
            if quiet_s >= self._stall_s and reported_at != last:
                reported_at = last
                self._report(quiet_s)
            if quiet_s >= 2 * self._stall_s:
                say("ansatz: nothing has happened since then, so the run ends.", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def _report(self, quiet_s: float) -> None:
        text = f"ansatz: nothing has been sampled and no step has ended for {quiet_s:.0f} s.\n{self._describe()}"
        say(text, file=sys.stderr, flush=True)
        if sys.__stderr__ is not None:
            faulthandler.dump_traceback(file=sys.__stderr__)
