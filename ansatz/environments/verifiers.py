"""Environments of the package verifiers: their turns, tools and stop conditions, with their rubric as the reward.

The environment's own loop (`Environment.rollout`) runs in an event loop of its own. Where it would ask a model, it gets
the policy's turn, and what it then adds to the conversation is the observation.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, cast

from ansatz.data.verifiers import load_environment, load_package
from ansatz.environments.base import Environment, Message
from ansatz.environments.tool_calls import read_turn, without_end
from ansatz.environments.tools import call_id
from ansatz.errors import ConfigError
from ansatz.rewards.base import RewardResult
from ansatz.types import Problem

_FAILURES = contextvars.ContextVar[list[str] | None]("failures", default=None)
"""Errors of reward functions, which a rubric only logs and counts as 0."""


def verifiers(*, environment: str, arguments: dict[str, Any] | None = None) -> VerifiersEnvironment:
    """Return an environment of the package verifiers (extra `verifiers`).

    environment: an installed one, as `verifiers.load_environment` takes it, or `path/to/file.py:function`, a function
    that returns one. arguments: of its function, such as {max_turns: 3}. Single turns work with every prompt template;
    tools and several turns need the template chat. Raise ConfigError for an environment whose rubric compares
    responses.
    """
    return VerifiersEnvironment(load_environment(environment, arguments))


class VerifiersEnvironment(Environment):
    """One rollout of a `verifiers.Environment`."""

    opens = False  # its data hold the whole prompt

    def __init__(self, environment: Any) -> None:
        package = load_package()
        if environment.requires_group_rollouts:
            raise ConfigError(
                "environment 'verifiers': the rubric compares the responses of a group, and an environment belongs to "
                "one response. Use a reward of Ansatz that compares responses."
            )
        self._environment = environment
        self.tools = [_schema(tool) for tool in environment.tool_defs or ()]
        if self.tools:
            self.roles = ("tool",)
        elif not isinstance(environment, package.SingleTurnEnv):
            self.roles = ("user",)
        self._client: Any = None
        self._rollout: asyncio.Task[Any] | None = None

    async def reset(self, problem: Problem) -> None:
        await _in_loop(self._start(_input_of(problem)))

    async def step(self, response: str) -> list[Message] | None:
        return await _in_loop(self._answer(response, is_cut_off=False))

    async def reward(self) -> RewardResult:
        return await _in_loop(self._score())

    async def close(self) -> None:
        await _in_loop(self._stop())

    async def _start(self, row: dict[str, Any]) -> None:
        self._client = _client_type()()
        self._rollout = asyncio.create_task(self._environment.rollout(row, self._client, "policy"))
        await self._next_request()

    async def _answer(self, response: str, *, is_cut_off: bool) -> list[Message] | None:
        """Give the policy's turn to the environment. Returns the messages that it adds; None: it has ended."""
        rollout, client = self._rollout, self._client
        assert rollout is not None
        if rollout.done():
            return None
        known = len(client.prompt) + 1
        client.turn.set_result((_assistant(response, [tool["function"]["name"] for tool in self.tools]), is_cut_off))
        if not await self._next_request():
            return None
        return [_simplify(message) for message in client.prompt[known:]]

    async def _next_request(self) -> bool:
        """Wait until the environment asks for a turn. False: it has ended."""
        rollout, asked = self._rollout, asyncio.ensure_future(self._client.asked.wait())
        assert rollout is not None
        await asyncio.wait({rollout, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        self._client.asked.clear()
        if rollout.done():
            rollout.result()  # raises what the environment has raised
        return not rollout.done()

    async def _score(self) -> RewardResult:
        rollout = self._rollout
        assert rollout is not None
        if not rollout.done() and self.open_turn:
            await self._answer(self.open_turn, is_cut_off=True)
        if not rollout.done():  # it would go on, but the response has ended
            self._client.turn.set_result(None)
        state = await rollout
        if state.get("error") is not None:
            raise RuntimeError(f"the environment stopped with {state['error']!r:.200}")
        failures = list[str]()
        _FAILURES.set(failures)
        _collect_failures()
        await self._environment.rubric.score_rollout(state)
        if failures:
            raise RuntimeError(failures[0])
        return RewardResult(value=float(state["reward"]))

    async def _stop(self) -> None:
        if self._rollout is not None and not self._rollout.done():
            self._rollout.cancel()


@cache
def _client_type() -> Any:
    """Return the client that the environment asks for turns of the policy. `asked` is set when it waits for one."""
    package = load_package()
    types = __import__("verifiers.types", fromlist=["Response"])

    class PolicyClient(package.Client):
        __abstractmethods__ = frozenset()

        def __init__(self) -> None:
            super().__init__(None)
            self.asked = asyncio.Event()
            self.prompt: Sequence[Any] = ()
            self.turn: asyncio.Future[tuple[dict[str, Any], bool] | None] = asyncio.Future()

        async def get_response(self, prompt: Any, model: str, *_: Any, **__: Any) -> Any:
            self.prompt, self.turn = list(prompt), asyncio.get_running_loop().create_future()
            self.asked.set()
            given = await self.turn
            if given is None:
                raise package.OverlongPromptError("the response has ended")
            message, is_cut_off = given
            reason = "length" if is_cut_off else "tool_calls" if message["tool_calls"] else "stop"
            return types.Response(
                id="policy",
                created=int(time.time()),
                model=model,
                message=types.ResponseMessage(**message, finish_reason=reason, is_truncated=is_cut_off),
            )

    PolicyClient.__abstractmethods__ = frozenset()  # only `get_response` is called
    return PolicyClient


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all environments of the package: some keep connections that belong to a loop."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="verifiers", daemon=True).start()
    return loop


async def _in_loop(call: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, _loop()))


class _Failures(logging.Handler):
    """Keeps what rubrics log about reward functions that raise."""

    def emit(self, record: logging.LogRecord) -> None:
        failures = _FAILURES.get()
        if failures is not None and "reward function" in (text := record.getMessage()):
            failures.append(text)


@cache
def _collect_failures() -> None:
    logging.getLogger("verifiers").addHandler(_Failures(level=logging.ERROR))


def _input_of(problem: Problem) -> dict[str, Any]:
    """Return the row of the environment's data that a problem is, or one that is made of a problem of another
    source."""
    if isinstance(row := problem.meta.get("input"), str) and problem.source == "verifiers":
        return json.loads(row)
    prompt = [*map(dict, problem.earlier_turns), {"role": "user", "content": problem.question}]
    return {"prompt": prompt, "answer": problem.answer, "info": {}, "example_id": problem.id}


def _assistant(turn: str, names: Sequence[str]) -> dict[str, Any]:
    """Return a turn of the policy as the environment takes it. A call that cannot be read has arguments that say so."""
    read = read_turn(turn, names)
    calls = [
        {
            "id": call_id(index, call),
            "name": call.name or "unknown",
            "arguments": call.error or json.dumps(dict(call.arguments)),
        }
        for index, call in enumerate(read.calls if names else ())
    ]
    content = without_end(read.content if calls else turn)
    return {"role": "assistant", "content": content, "tool_calls": calls or None}


def _simplify(message: Any) -> Message:
    fields = dict(message if isinstance(message, Mapping) else message.model_dump(exclude_none=True))
    content = fields.get("content")
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        fields["content"] = "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))
    return {key: fields[key] for key in ("role", "content", "tool_call_id", "name") if key in fields}


def _schema(tool: Any) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": described}
