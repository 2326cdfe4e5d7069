"""One response in its environment: its turns, its reward, and the handling of errors, deadlines and long outputs."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ansatz.environments.base import Environment, EnvironmentSpec, Observation, is_overridden
from ansatz.environments.opened_problems import opened, opening_error, unopened
from ansatz.environments.rewarding import failed_reward, reward_of
from ansatz.errors import StorageError
from ansatz.own_clock import TimeLimit
from ansatz.process import keep_settings
from ansatz.types import EnvironmentReward, Problem, Reason
from ansatz.visible import error_text, whole

T = TypeVar("T")

_MAX_IDLE_THREADS = 64
_PROBE = "\ufdd0"
_CUT = "\n[... {} characters left out ...]\n"


class FramedText(str):
    """A text within the environment's own tags. frame: how many characters of them are before and after the text, so
    that a special token which a recipe names as a tag is one."""

    frame: tuple[int, int] = (0, 0)


class ResetError(Exception):
    """An environment that cannot start with its problem. The message is for the policy."""


class Episode:
    """The environment of one response. It is created at the first call, and again after a missed deadline.

    problem: as the prompt shows it, with the opening of the environment. If `reset` has failed to give the opening, or
    gives another one than the prompt has, the environment does not start: every turn is answered by the error, and the
    reward is a crash.
    """

    def __init__(self, spec: EnvironmentSpec, problem: Problem) -> None:
        self._spec, self._problem = spec, problem
        self._instance: _Instance | None = None
        self._earlier: list[str] = []
        self._has_lost_state = False

    async def opened(self) -> Problem:
        """Return the problem with the opening of its environment, or with the error of `reset`; as it is if it has
        none."""
        problem = self._problem
        try:
            opening = await self._reset()
            return opened(problem, opening) if opening else problem
        except TimeoutError:
            return opened(problem, "", error=f"reset() has not returned within {self._spec.settings.timeout_s:g} s")
        except StorageError:
            raise
        except (Exception, SystemExit) as error:
            return opened(problem, "", error=_describe(error))
        finally:
            await self.close()

    def replay(self, turn: str) -> None:
        """Replay a turn of a resumed response, whose observation is known. Before its next turn, the environment sees
        it."""
        self._earlier.append(turn)

    async def answer(self, turn: str) -> Observation | None:
        """Return the observation that the policy sees after a turn. None: the response is done. Errors become
        observations, except a full disk, which says nothing about the turn."""
        settings = self._spec.settings
        try:
            instance = await self._start()
            observation = whole(await self._call(instance, instance.environment.step, turn))
            if observation is None or isinstance(observation, str):
                return self._show(observation) if observation else None
            if (problem := self._no_messages(observation)) is None:
                return [
                    {**message, "content": cut(message["content"], settings.max_observation_chars)}
                    for message in observation
                ] or None
        except TimeoutError:
            self._has_lost_state = True
            problem = f"no result within {settings.timeout_s:g} s"
        except StorageError:
            raise
        except (Exception, SystemExit) as error:
            problem = _describe(error)
        return self._show(f"error: {problem}")

    async def reward(self, open_turn: str) -> EnvironmentReward | None:
        """Return the reward of the response, which has ended. None: the recipe decides. open_turn: see
        `Environment`."""
        name, timeout_s = self._spec.name, self._spec.settings.timeout_s
        try:
            instance = None if self._has_lost_state else await self._start()
            if instance is None or self._has_lost_state:
                return failed_reward(
                    name,
                    f"one of its calls missed the deadline of {timeout_s:g} s, after which its state was lost",
                    Reason.TIMEOUT,
                )
            instance.environment.open_turn = open_turn
            return reward_of(name, await self._call(instance, instance.environment.reward))
        except TimeoutError:
            return failed_reward(name, f"reward() has not returned within {timeout_s:g} s", Reason.TIMEOUT)
        except ResetError as error:
            return failed_reward(name, str(error), Reason.CRASHED)
        except StorageError:
            raise
        except (Exception, SystemExit) as error:
            return failed_reward(name, f"reward() raised {_describe(error)}", Reason.CRASHED)

    def _show(self, text: str) -> Observation:
        """Return a text as the environment shows it; as it is if the environment cannot."""
        text, show = cut(text, self._spec.settings.max_observation_chars), self._spec.sample.show
        try:
            shown, empty = whole(show(text)), whole(show(_PROBE))
        except Exception:  # code of a user can raise anything
            return text
        if isinstance(shown, str) and isinstance(empty, str):
            before, _, after = empty.partition(_PROBE)
            if shown == before + text + after:
                shown = FramedText(shown)
                shown.frame = len(before), len(after)
        return shown

    def _no_messages(self, observation: Any) -> str | None:
        """Return why an observation cannot be shown as messages; None if it can."""
        if (problem := _find_fault_of_messages(observation)) is not None:
            return f"the environment gave {problem}"
        if self._spec.chat is not None:
            return None
        kind = type(observation).__name__
        return f"the environment gave {kind}, expected text or None (messages need the prompt template chat)"

    async def close(self) -> None:
        """Close the environment. An error of a user's `close` is of no use to anyone by then."""
        instance, self._instance = self._instance, None
        if instance is not None and instance.take_closing():
            with contextlib.suppress(Exception):
                await self._call(instance, instance.environment.close)

    async def _start(self) -> _Instance:
        """Return the environment, which has been given the problem and the turns of a resumed response."""
        if self._instance is None:
            if error := opening_error(self._problem):
                raise ResetError(error)
            try:
                opening = await self._reset()
            except TimeoutError:
                if not self._earlier:
                    raise
                del self._earlier[0]  # it got no result, and the next turn a new environment
                self._has_lost_state = True
                return await self._start()
            problem = unopened(self._problem)
            if (opened(problem, opening) if opening else problem) != self._problem:
                await self.close()
                raise ResetError("reset() gave another opening than the prompt has, which its problem must determine")
        assert self._instance is not None
        while self._earlier:
            turn = self._earlier.pop(0)
            try:
                await self._call(self._instance, self._instance.environment.step, turn)
            except TimeoutError:  # as after its first call, a new environment gets the turns that follow
                self._has_lost_state = True
                return await self._start()
            except StorageError:
                raise
            except (Exception, SystemExit):  # the observation of this turn is the error
                pass
        return self._instance

    async def _reset(self) -> Observation | None:
        """Create the environment and give it the problem. Returns its opening; None without one."""
        self._instance = instance = _Instance(self._spec.make())
        try:
            opening = whole(await self._call(instance, instance.environment.reset, unopened(self._problem)))
            if opening is not None and not isinstance(opening, str) and (problem := _find_fault_of_messages(opening)):
                raise ResetError(f"reset() gave {problem}")
        except TimeoutError:
            raise
        except (Exception, SystemExit) as error:
            await self.close()
            raise (
                error if isinstance(error, ResetError) else ResetError(f"reset() raised {_describe(error)}")
            ) from error
        return opening or None

    async def _call(self, instance: _Instance, method: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a method. At a TimeoutError the environment is given up, and created again at the next
        call."""
        try:
            if self._spec.sample.instant or not is_overridden(method):
                with keep_settings(f"environment {self._spec.name!r}"):
                    return method(*arguments)
            async with TimeLimit(self._spec.settings.timeout_s + self._spec.sample.grace_s):
                with keep_settings(f"environment {self._spec.name!r}"):
                    if inspect.iscoroutinefunction(method):
                        return await method(*arguments)
                    return await in_thread(instance.in_use(lambda: method(*arguments)))
        except TimeoutError:
            if self._instance is instance:
                self._instance = None  # what a late call still does to it must not reach later turns
            instance.give_up()
            raise


class _Instance:
    """An environment that is closed once: when its response has ended, or when the last late call to it ends."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._lock = threading.Lock()
        self._num_running, self._is_given_up, self._is_closed = 0, False, False

    def in_use(self, call: Callable[[], T]) -> Callable[[], T]:
        """Mark the environment as in use until the returned call ends. It is closed then if it has been given up."""
        with self._lock:
            self._num_running += 1

        def run() -> T:
            try:
                return call()
            finally:
                with self._lock:
                    self._num_running -= 1
                self._close_if_unused()

        return run

    def give_up(self) -> None:
        """Give the episode up: no call will follow. An `async` call that was late has been cancelled; a plain one still
        runs in its thread, and one that never ends is never closed: to close an environment during a call could crash
        the process."""
        self._is_given_up = True
        _THREADS.run(self._close_if_unused)

    def take_closing(self) -> bool:
        """Return whether the caller is the one who closes the environment."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
        return is_first

    def _close_if_unused(self) -> None:
        with self._lock:
            is_unused = self._is_given_up and not self._num_running
        if is_unused and self.take_closing():
            with contextlib.suppress(Exception, SystemExit):
                closing = self.environment.close()
                if inspect.isawaitable(closing):
                    asyncio.run(_finish(closing))


async def _finish(awaitable: Awaitable[Any]) -> None:
    await awaitable


def _describe(error: BaseException) -> str:
    text = error_text(error)
    return text if isinstance(error, ResetError) else f"{type(error).__name__}: {text}"


def _find_fault_of_messages(value: Any) -> str | None:
    """Describe a value that is not a list of messages, and the type that was expected; None if it is one."""
    if not isinstance(value, list | tuple):
        return f"{type(value).__name__}, expected text or None"
    for message in value:
        texts = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else (None,)
        if not all(isinstance(text, str) for text in texts):
            return f"the message {message!r:.60}, expected a role and a text"
    return None


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a call that never waits, as of an instant environment."""
    try:
        call.send(None)
    except StopIteration as finished:
        return finished.value
    raise AssertionError("an instant environment has waited")


async def in_thread(function: Callable[[], Any]) -> Any:
    """Return the result of a function that may block, or never return. Its thread does not keep the process alive."""
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
    """Return the text, without its middle if it is longer than max_chars."""
    if len(text) <= max_chars:
        return text
    head = max_chars // 2
    return text[:head] + _CUT.format(len(text) - max_chars) + text[len(text) - (max_chars - head) :]
