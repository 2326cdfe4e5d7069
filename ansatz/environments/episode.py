"""One response in its environment: its turns, its reward, and what becomes of errors, deadlines and long outputs."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import queue
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ansatz.environments.base import Environment, EnvironmentSpec, Observation
from ansatz.environments.rewarding import failed_reward, reward_of
from ansatz.types import EnvironmentReward, Problem, Reason

T = TypeVar("T")

_MAX_IDLE_THREADS = 64
_CUT = "\n[... {} characters left out ...]\n"


class Episode:
    """The environment of one response. It is created at the first call, and again after a missed deadline."""

    def __init__(self, spec: EnvironmentSpec, problem: Problem) -> None:
        self._spec, self._problem = spec, problem
        self._environment: Environment | None = None
        self._earlier: list[str] = []
        self._has_lost_state = False

    def replay(self, turn: str) -> None:
        """A turn of a resumed response, whose observation is known. Before its next turn, the environment sees it."""
        self._earlier.append(turn)

    def answer_at_once(self, turn: str) -> Observation | None:
        """`answer` of an instant environment, in this thread."""
        return _at_once(self.answer(turn))

    def reward_at_once(self, open_turn: str) -> EnvironmentReward | None:
        """`reward` of an instant environment, in this thread."""
        return _at_once(self.reward(open_turn))

    async def answer(self, turn: str) -> Observation | None:
        """What the policy sees after a turn. None: the response is done. Errors become observations."""
        settings, show = self._spec.settings, self._spec.sample.show
        try:
            observation = await self._step(turn)
            if observation is None or isinstance(observation, str):
                return show(cut(observation, settings.max_observation_chars)) if observation else None
            if (problem := self._no_messages(observation)) is None:
                return [
                    {**message, "content": cut(message["content"], settings.max_observation_chars)}
                    for message in observation
                ] or None
        except TimeoutError:
            self._environment = None  # what a late call still does to it must not reach later turns
            self._has_lost_state = True
            problem = f"no result within {settings.timeout_s:g} s"
        except (Exception, SystemExit) as error:
            problem = f"{type(error).__name__}: {error}"
        return show(cut(f"error: {problem}", settings.max_observation_chars))

    async def reward(self, open_turn: str) -> EnvironmentReward | None:
        """The reward of the response, which has ended. None: the recipe decides. open_turn: see `Environment`."""
        name, timeout_s = self._spec.name, self._spec.settings.timeout_s
        if self._has_lost_state:
            return failed_reward(
                name,
                f"one of its calls missed the deadline of {timeout_s:g} s, after which its state was lost",
                Reason.TIMEOUT,
            )
        try:
            environment = await self._started()
            environment.open_turn = open_turn
            return reward_of(name, await self._call(environment.reward))
        except TimeoutError:
            return failed_reward(name, f"reward() has not returned within {timeout_s:g} s", Reason.TIMEOUT)
        except (Exception, SystemExit) as error:
            return failed_reward(name, f"reward() raised {type(error).__name__}: {error}", Reason.CRASHED)

    def _no_messages(self, observation: Any) -> str | None:
        """Why an observation cannot be shown as messages; None if it can."""
        gave = f"the environment gave {type(observation).__name__}, expected text or None"
        if not isinstance(observation, list | tuple):
            return gave
        for message in observation:
            texts = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else (None,)
            if not all(isinstance(text, str) for text in texts):
                return f"the environment gave the message {message!r:.60}, expected a role and a text"
        return None if self._spec.chat is not None else f"{gave} (messages need the prompt template chat)"

    async def close(self) -> None:
        """Close the environment. An error of a user's `close` is of no use to anyone by then."""
        environment, self._environment = self._environment, None
        if environment is not None:
            with contextlib.suppress(Exception):
                await self._call(environment.close)

    async def _step(self, turn: str) -> Any:
        environment = await self._started()
        return await self._call(environment.step, turn)

    async def _started(self) -> Environment:
        """The environment, which has been given the problem and the turns of a resumed response."""
        if self._environment is None:
            self._environment = self._spec.make()
            await self._call(self._environment.reset, self._problem)
        while self._earlier:
            await self._call(self._environment.step, self._earlier[0])
            del self._earlier[0]
        return self._environment

    async def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        if self._spec.sample.instant:
            return method(*arguments)
        async with asyncio.timeout(self._spec.settings.timeout_s + self._spec.sample.grace_s):
            if inspect.iscoroutinefunction(method):
                return await method(*arguments)
            return await in_thread(lambda: method(*arguments))


def _at_once(call: Coroutine[Any, Any, T]) -> T:
    """The result of a call that never waits."""
    try:
        call.send(None)
    except StopIteration as finished:
        return finished.value
    raise AssertionError("an instant environment has waited")


async def in_thread(function: Callable[[], Any]) -> Any:
    """The result of a function that may block, or never return. Its thread does not keep the process alive."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def report(result: Any, error: BaseException | None) -> None:
        if outcome.done():  # nobody waits for it any more
            return
        if error is None:
            outcome.set_result(result)
        else:
            outcome.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # also SystemExit: a user's code calls exit()
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(report, result, error)

    _THREADS.run(run)
    return await outcome


class _Threads:
    """Threads that are used again. None keeps the process alive, and one that never returns is not waited for."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._idle.clear)  # a forked process has none of the threads

    def run(self, job: Callable[[], None]) -> None:
        with self._lock:
            jobs = self._idle.pop() if self._idle else None
        if jobs is None:
            jobs = queue.SimpleQueue[Callable[[], None]]()
            threading.Thread(target=self._work, args=(jobs,), name="environment", daemon=True).start()
        jobs.put(job)

    def _work(self, jobs: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            jobs.get()()
            with self._lock:
                if len(self._idle) >= _MAX_IDLE_THREADS:
                    return
                self._idle.append(jobs)


_THREADS = _Threads()


def cut(text: str, max_chars: int) -> str:
    """The text, without its middle if it is longer than max_chars."""
    if len(text) <= max_chars:
        return text
    head = max_chars // 2
    return text[:head] + _CUT.format(len(text) - max_chars) + text[len(text) - (max_chars - head) :]
