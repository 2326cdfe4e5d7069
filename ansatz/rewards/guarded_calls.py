"""Calls of functions that might never return: a user's reward, or a request to another machine.

Python cannot end a thread. Each function therefore runs in a daemon thread, which does not keep the process alive, and
the caller waits no longer than until the deadline, or until the calls are cancelled. Coroutines of all calls run
in one event loop, so that all coroutines of a step wait for other machines at the same time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from ansatz.own_clock import Deadline

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
        """Return the function's result, or raise its error. Raise DeadlineMissed after deadline_s (None: no deadline),
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
            deadline = Deadline(deadline_s)
            threading.Thread(target=run, name="reward", daemon=True).start()
            while not outcome.done():
                if deadline.is_over():
                    raise DeadlineMissed
                concurrent.futures.wait([outcome], deadline.left_s)
            return outcome.result()
        finally:
            self._running.discard(outcome)  # pyright: ignore[reportArgumentType]

    def cancel(self) -> None:
        """End the waiting of all calls that are running."""
        for outcome in tuple(self._running):
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                outcome.set_exception(CallsCancelled())


def await_all(value: Any) -> Any:
    """Return a function's value. If it is a coroutine, or a list of them, wait for all of them together.

    They run in an event loop that lasts as long as the process, because clients and semaphores of the user's module
    belong to the loop of their first use.
    """
    is_list = isinstance(value, list)
    values = cast("list[Any]", value) if is_list else [value]
    if not any(map(inspect.isawaitable, values)):
        return value
    results = asyncio.run_coroutine_threadsafe(_gather(values), event_loop("async rewards")).result()
    return results if is_list else results[0]


async def _gather(values: list[Any]) -> list[Any]:
    async def wait_for(value: Any) -> Any:
        return await value if inspect.isawaitable(value) else value

    return list(await asyncio.gather(*map(wait_for, values)))


_loops: dict[tuple[str, int], asyncio.AbstractEventLoop] = {}
_loops_lock = threading.Lock()


def event_loop(name: str) -> asyncio.AbstractEventLoop:
    """Return the event loop of this name, which runs in a daemon thread as long as the process. A fork gets its own,
    because threads do not survive it."""
    key = (name, os.getpid())
    with _loops_lock:
        if key not in _loops:
            _loops[key] = asyncio.new_event_loop()
            threading.Thread(target=_loops[key].run_forever, name=name, daemon=True).start()
        return _loops[key]
