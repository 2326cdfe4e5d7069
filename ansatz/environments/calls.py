"""The calls of all environments of one sampler: they run side by side, and none holds up the thread that samples."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from typing import Any

from ansatz.environments.base import EnvironmentSpec
from ansatz.environments.episode import Episode
from ansatz.errors import RolloutError

_GRACE_S = 30.0
"""Seconds after its deadline that a call has to end. Only an `async` method that blocks the event loop takes longer."""

_CLOSE_S = 2.0
"""Seconds that environments get to close when a call of the sampler ends."""


class EnvironmentCalls:
    """Runs the calls in an event loop of a thread of its own, at most `Environment.parallel` at the same time."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec = spec
        self._open: set[Episode] = set()
        self._answers: queue.SimpleQueue[tuple[Any, str | None]] = queue.SimpleQueue()
        self._num_running = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places = asyncio.Semaphore(spec.sample.parallel)

    def submit(self, key: Any, episode: Episode, turn: str) -> None:
        """Begin to answer a turn. `finished` gives the answer under this key."""
        self._num_running += 1
        self._open.add(episode)
        asyncio.run_coroutine_threadsafe(self._answer(key, episode, turn), self._running_loop())

    def finished(self, *, wait: bool) -> list[tuple[Any, str | None]]:
        """The answers that have arrived. wait: at least one, if any call is running."""
        answers: list[tuple[Any, str | None]] = []
        while self._num_running and (wait or not self._answers.empty()):
            answers.append(self._next())
            self._num_running -= 1
            wait = False
        return answers

    def answer(self, episode: Episode, turn: str) -> str | None:
        """The answer to one turn, for a sampler that has nothing else to do meanwhile."""
        if self.spec.sample.instant:
            return episode.answer_at_once(turn)
        self.submit(None, episode, turn)
        ((_, answer),) = self.finished(wait=True)
        return answer

    def end(self, episode: Episode) -> None:
        """The response of the episode has ended, so its environment can release what it holds."""
        if episode in self._open:
            self._open.remove(episode)
            asyncio.run_coroutine_threadsafe(episode.close(), self._running_loop())

    def close(self) -> None:
        """Close all environments and end the thread. Calls that are still running are abandoned."""
        if self._loop is None:
            return
        ending = asyncio.run_coroutine_threadsafe(_close_all(self._open), self._loop)
        with suppress(FutureTimeout):
            ending.result(_CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop, self._open = None, set()

    def _next(self) -> tuple[Any, str | None]:
        settings = self.spec.settings
        limit = (settings.timeout_s + self.spec.sample.grace_s) * (settings.turns + 1) + _GRACE_S
        try:
            return self._answers.get(timeout=limit)
        except queue.Empty:
            raise RolloutError(
                f"environment {self.spec.name!r} has not answered for {limit:g} s, although environment.timeout_s = "
                f"{settings.timeout_s:g}: one of its async methods blocks. Write it as a plain method, or await."
            ) from None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(self._loop,), name="environments", daemon=True).start()
        return self._loop

    async def _answer(self, key: Any, episode: Episode, turn: str) -> None:
        async with self._places:
            answer = await episode.answer(turn)
        self._answers.put((key, answer))


async def _close_all(episodes: Iterable[Episode]) -> None:
    await asyncio.gather(*(episode.close() for episode in episodes))


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@contextmanager
def environment_calls(spec: EnvironmentSpec | None) -> Iterator[EnvironmentCalls | None]:
    """The calls of one call of a sampler; None without an environment."""
    if spec is None:
        yield None
        return
    calls = EnvironmentCalls(spec)
    try:
        yield calls
    finally:
        calls.close()
