"""Calls of functions that might never return: a user's reward, or a request to another machine.

Python cannot end a thread. Each function therefore runs in a daemon thread, which does not keep the process alive, and
whoever called it waits no longer than until the deadline, or until the calls are cancelled.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class DeadlineMissed(Exception):
    """The function has not returned in time. Its thread is left behind."""


class CallsCancelled(Exception):
    """`cancel` was called while the function was running."""


class GuardedCalls:
    """Runs functions with a deadline. Any number of threads can call them at the same time."""

    def __init__(self) -> None:
        self._running: set[Future[object]] = set()

    def call(self, function: Callable[[], T], *, deadline_s: float | None) -> T:
        """Return what the function returns or raises. Raise DeadlineMissed after deadline_s (None: no deadline),
        or CallsCancelled after `cancel`."""
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                result = function()
            except BaseException as error:
                with contextlib.suppress(concurrent.futures.InvalidStateError):  # nobody waits for it any more
                    outcome.set_exception(error)
            else:
                with contextlib.suppress(concurrent.futures.InvalidStateError):
                    outcome.set_result(result)

        self._running.add(outcome)  # pyright: ignore[reportArgumentType]
        try:
            threading.Thread(target=run, name="reward", daemon=True).start()
            done, _ = concurrent.futures.wait([outcome], deadline_s)
            if not done:
                raise DeadlineMissed
            return outcome.result()
        finally:
            self._running.discard(outcome)  # pyright: ignore[reportArgumentType]

    def cancel(self) -> None:
        """End the waiting of all calls that are running."""
        for outcome in tuple(self._running):
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                outcome.set_exception(CallsCancelled())
