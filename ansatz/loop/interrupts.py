"""Signals that end a run: the run saves its state, cleans up, and exits with code 75 (EX_TEMPFAIL).

SIGTERM, SIGINT (Ctrl-C), SIGUSR1 and SIGHUP are noticed in every wait. A training stage then completes its step, saves
the step edge and ends. If the step takes longer than `save.grace` seconds, the step is dropped and the edge before it
is saved, which is possible as long as the step has not changed the weights: everything else that belongs to an edge is
small and was captured there (`loop.step_edges`). Once the weights are changing, the step is completed however long it
takes, because the edge before it would need a second copy of all weights. Outside of a training stage there is nothing
to save: the files of these stages are complete after a kill at any moment.

A second signal ends the process at once. SIGHUP of a terminal that has been closed is ignored: the run continues.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn, Protocol

from ansatz.errors import RunInterrupted
from ansatz.loop.run_record import is_run_folder
from ansatz.process import exit_at_once
from ansatz.visible import say

EXIT_CODE = os.EX_TEMPFAIL
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT)
CLEANUP_S = 5.0
"""Seconds that closing samplers and graders may take once everything is saved. A hanging reward cannot delay it."""


class Interruptible(Protocol):
    """An object that saves itself when a signal arrives. Both are called from a signal handler, in the main thread."""

    @property
    def idle(self) -> bool:
        """True if no step has begun since the last edge, so that nothing is gained by waiting."""
        ...

    def save_edge(self) -> str | None:
        """Save the last step edge and return a sentence about it; None if that is not possible at this moment."""
        ...


class Interrupts:
    """The signals of one run, in the folder run_dir. grace_s: seconds that a step may still take after a signal."""

    def __init__(self, run_dir: Path, *, grace_s: float) -> None:
        self._run_dir = run_dir
        self.signal: signal.Signals | None = None
        self._grace_s = grace_s
        self._stage: Interruptible | None = None
        self._farewell: RunInterrupted | None = None
        self._had_terminal = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals until the block ends. No effect outside of the main thread, where Python forbids it.

        A signal that is ignored stays ignored, such as SIGHUP under nohup.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._had_terminal = _has_terminal()
        handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._on_signal) for number in handled}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_alarm)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def saving(self, stage: Interruptible) -> Iterator[None]:
        """Save this stage if a signal arrives before the block ends."""
        self._stage = stage
        try:
            yield
        finally:
            self._stage = None

    def leave(self, sentence: str) -> NoReturn:
        """End the run after a signal, once everything is saved. sentence: says which step was saved."""
        assert self.signal is not None
        resume = f"Resume with: ansatz train --resume {self._run_dir}"
        if not is_run_folder(self._run_dir):
            resume = "The run had not begun; run the command again."
        self._farewell = RunInterrupted(f"stopped by {self.signal.name}. {sentence} {resume}")
        signal.setitimer(signal.ITIMER_REAL, CLEANUP_S)
        raise self._farewell

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP and self._had_terminal and not _has_terminal():
            return
        if self.signal is not None:
            exit_at_once(128 + number)
        self.signal = signal.Signals(number)
        if self._stage is None or self._stage.idle:
            self._save_and_leave()
        if self._farewell is None:
            signal.setitimer(signal.ITIMER_REAL, max(self._grace_s, 1e-3))  # 0 would mean never

    def _on_alarm(self, _number: int, _frame: FrameType | None) -> None:
        if self._farewell is not None:
            say(f"ansatz: {self._farewell}", file=sys.stderr, flush=True)
            exit_at_once(EXIT_CODE)
        self._save_and_leave()

    def _save_and_leave(self) -> None:
        """Leave unless the edge cannot be saved now. In that case the next edge of the step is saved."""
        if self._stage is None:
            self.leave("No training was in progress, and finished work is stored.")
        if (sentence := self._stage.save_edge()) is not None:
            self.leave(sentence)


def _has_terminal() -> bool:
    """Tell whether the process has a controlling terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
