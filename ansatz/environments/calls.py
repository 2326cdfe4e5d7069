"""The calls of all environments of one sampler: they run side by side, and none holds up the thread that samples."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from typing import Any, Generic, TypeVar

from ansatz.environments.base import EnvironmentSpec, Observation, is_overridden
from ansatz.environments.episode import Episode, at_once
from ansatz.errors import RolloutError, StorageError
from ansatz.own_clock import Deadline
from ansatz.types import EnvironmentReward, Problem

T = TypeVar("T")

_GRACE_S = 30.0
"""Seconds after its deadline that a call has to end. Only an `async` method that blocks the event loop takes longer."""

_CLOSE_S = 2.0
"""Seconds that environments get to close when a call of the sampler ends."""


class EnvironmentCalls:
    """Runs the calls in an event loop of a thread of its own, at most `Environment.parallel` at the same time.

    answers, rewards: the calls that `submit` and `submit_reward` have begun.
    """

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec = spec
        self._open: set[Episode] = set()
        self._closing: set[Future[None]] = set()
        self.answers = Running[Observation | None](spec, self._limit_s)
        self.rewards = Running[EnvironmentReward | None](spec, self._limit_s)
        self._openings = Running[Problem](spec, self._limit_s)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places = asyncio.Semaphore(spec.sample.parallel)

    def submit(self, turns: Iterable[tuple[Any, Episode, str]]) -> None:
        """Begin to answer turns: (key, episode, text) each. `answers` gives the answers under these keys."""
        calls = list[tuple[Any, Coroutine[Any, Any, Observation | None]]]()
        for key, episode, turn in turns:
            self._open.add(episode)
            calls.append((key, episode.answer(turn)))
        self._begin(self.answers, calls)

    def answer(self, episode: Episode, turn: str) -> Observation | None:
        """Return the answer to one turn, for a sampler that has nothing else to do meanwhile."""
        if self.spec.sample.instant:
            return at_once(episode.answer(turn))
        self.submit([(None, episode, turn)])
        ((_, answer),) = self.answers.finished(wait=True)
        return answer

    def opened(self, episodes: Sequence[Episode]) -> list[Problem]:
        """Return the problem of each episode, with the opening of its environment."""
        self._begin(self._openings, [(index, episode.opened()) for index, episode in enumerate(episodes)])
        problems = dict[int, Problem]()
        while len(problems) < len(episodes):
            problems |= self._openings.finished(wait=True)
        return [problems[index] for index in range(len(episodes))]

    def submit_reward(self, key: Any, episode: Episode, open_turn: str) -> None:
        """Begin to ask for the reward of a response that has ended. `rewards` gives it under this key."""
        if self.spec.sample.instant:
            self.rewards.add(key, at_once(episode.reward(open_turn)))
            return
        self._open.add(episode)
        self._begin(self.rewards, [(key, episode.reward(open_turn))])

    def end(self, episode: Episode) -> None:
        """End the response of the episode, so that its environment can release its resources."""
        if episode in self._open:
            self._open.remove(episode)
            if not is_overridden(self.spec.sample.close):
                return
            closing = asyncio.run_coroutine_threadsafe(episode.close(), self._running_loop())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def close(self) -> None:
        """Close all environments and end the thread. Calls that are still running are abandoned."""
        if self._loop is None:
            return
        ending = asyncio.run_coroutine_threadsafe(_close_all(self._open), self._loop)
        wait_for([ending, *self._closing.copy()], _CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop, self._open = None, set()

    @property
    def _limit_s(self) -> float:
        """Return the most seconds of a call, whatever its environment does, unless that blocks the event loop."""
        settings = self.spec.settings
        return (settings.timeout_s + self.spec.sample.grace_s) * (settings.turns + 1) + _GRACE_S

    def _begin(self, running: Running[T], calls: Sequence[tuple[Any, Coroutine[Any, Any, T]]]) -> None:
        running.num_running += len(calls)
        asyncio.run_coroutine_threadsafe(self._run_all(running, calls), self._running_loop())

    async def _run_all(self, running: Running[T], calls: Sequence[tuple[Any, Coroutine[Any, Any, T]]]) -> None:
        await asyncio.gather(*(self._run(running, key, call) for key, call in calls))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(self._loop,), name="environments", daemon=True).start()
        return self._loop

    async def _run(self, running: Running[T], key: Any, call: Coroutine[Any, Any, T]) -> None:
        async with self._places:
            try:
                result = await call
            except StorageError as error:
                result = error
        running.arrived.put((key, result))


class Running(Generic[T]):
    """Calls of one kind: how many are running, and the results that have arrived, by key. A full disk is raised."""

    def __init__(self, spec: EnvironmentSpec, limit_s: float) -> None:
        self._spec, self._limit_s = spec, limit_s
        self.num_running = 0
        self.arrived: queue.SimpleQueue[tuple[Any, T | StorageError]] = queue.SimpleQueue()

    def add(self, key: Any, result: T) -> None:
        """Add the result of a call that ran in the caller's thread."""
        self.num_running += 1
        self.arrived.put((key, result))

    def finished(self, *, wait: bool) -> list[tuple[Any, T]]:
        """Return the results that have arrived. wait: at least one, if any call is running."""
        results: list[tuple[Any, T]] = []
        while self.num_running and (wait or not self.arrived.empty()):
            results.append(self._next())
            self.num_running -= 1
            wait = False
        return results

    def finished_soon(self, number: int, *, patience_s: float) -> list[tuple[Any, T]]:
        """Return the results that have arrived, and up to `number` that arrive within patience_s seconds."""
        results, deadline = list[tuple[Any, T]](), Deadline(patience_s)
        with suppress(queue.Empty):
            while len(results) < min(number, self.num_running):
                results.append(self._take(deadline.left_s))
        self.num_running -= len(results)
        return results

    def _next(self) -> tuple[Any, T]:
        deadline = Deadline(self._limit_s)
        while not deadline.is_over():
            with suppress(queue.Empty):
                return self._take(deadline.left_s)
        raise RolloutError(
            f"environment {self._spec.name!r} has not answered for {self._limit_s:g} s, although "
            f"environment.timeout_s = {self._spec.settings.timeout_s:g}: one of its async methods blocks. Write it "
            "as a plain method, or await."
        )

    def _take(self, timeout_s: float | None) -> tuple[Any, T]:
        key, result = self.arrived.get(timeout=timeout_s)
        if isinstance(result, StorageError):
            raise result
        return key, result


async def _close_all(episodes: Iterable[Episode]) -> None:
    await asyncio.gather(*(episode.close() for episode in episodes))


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def environment_calls(spec: EnvironmentSpec | None) -> AbstractContextManager[EnvironmentCalls | None]:
    """Return a context with the calls of one call of a sampler; None without an environment."""
    return nullcontext() if spec is None else closing(EnvironmentCalls(spec))
