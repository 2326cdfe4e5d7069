"""Tasks of the package verifiers (0.4): a response can call their toolsets, and their rewards are its reward.

The toolsets run in this process, in an event loop of their own. A response is written down as a trace of the package,
which the task scores. A task that needs a runtime of the package (a container, a shell) is refused before a run starts.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import importlib
import inspect
import json
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import cache
from typing import Any

from ansatz.data.verifiers import load_package, load_taskset
from ansatz.environments.base import Environment, Message
from ansatz.environments.tool_calls import ToolCall, read_turn, without_end
from ansatz.environments.tools import call_id, described
from ansatz.errors import AnsatzError, ConfigError
from ansatz.rewards.base import RewardResult
from ansatz.rewards.guarded_calls import event_loop
from ansatz.types import Problem

_TRACE = contextvars.ContextVar[Any]("trace")
"""The trace of the response that calls a tool, whose state the tool shares."""


def verifiers(*, environment: str, arguments: dict[str, Any] | None = None) -> VerifiersEnvironment:
    """Return an environment that plays tasks of the package verifiers (extra `verifiers`).

    environment: the id of an installed taskset, or `path/to/file.py:Name`, a subclass of `verifiers.v1.Taskset` or a
    function that returns a taskset. arguments: the fields of its configuration, such as {task: {...}}, or the arguments
    of the function. Tasks without tools work with every prompt template; tools need the template chat. Raise
    ConfigError for tasks that need more of the package than toolsets and rewards.
    """
    return VerifiersEnvironment(*load_taskset(environment, arguments))


class VerifiersEnvironment(Environment):
    """One response to a task. taskset, task: see `data.verifiers.load_taskset`."""

    opens = False  # its data hold the whole prompt

    def __init__(self, taskset: Any, task: Any) -> None:
        self._taskset, self._task = taskset, task
        self.tools = _check_tools(taskset, task)
        self._names = [tool["function"]["name"] for tool in self.tools]
        if self.tools:
            self.roles = ("tool",)
        self._trace: Any = None
        self._own: list[_Server] = []
        self._servers: list[_Server] = []

    async def reset(self, problem: Problem) -> None:
        await _in_loop(self._start(problem))

    async def step(self, response: str) -> list[Message] | None:
        return await _in_loop(self._answer(response))

    async def reward(self) -> RewardResult:
        return await _in_loop(self._score())

    async def close(self) -> None:
        await _in_loop(self._stop())

    async def _start(self, problem: Problem) -> None:
        package, states = load_package(), importlib.import_module("verifiers.v1.state")
        task = self._task = _task_of(problem, self._task)
        self._trace = package.Trace(
            task=package.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            agent=package.AgentInfo(config=package.AgentConfig()),
            state=states.state_cls(type(task))(),
        )
        types, given = _types(), task.data.prompt
        if task.data.system_prompt is not None:
            self._add(types.SystemMessage(content=task.data.system_prompt))
        for message in [types.UserMessage(content=given)] if isinstance(given, str) else given or []:
            self._add(message)
        shared = await asyncio.shield(_start_shared(self._taskset))
        self._own = [_Server(toolset) for toolset in type(task).toolsets(task.config)]
        for server in self._own:
            await server.start(task.data)
        self._servers = [*self._own, *shared]

    async def _answer(self, response: str) -> list[Message] | None:
        """Run the calls of a turn. Returns their results; None: the response has ended."""
        calls = self._take(response, reason="stop")
        _TRACE.set(self._trace)
        results = [await self._call(call) for call in calls]
        if not calls or await self._has_stopped():
            return None
        messages = list[Message]()
        for index, (call, result) in enumerate(zip(calls, results, strict=True)):
            told = {"name": call.name, "tool_call_id": call_id(index, call), "content": result}
            self._add(_types().ToolMessage(**told))
            messages.append({"role": "tool", **told})
        return messages

    def _take(self, response: str, *, reason: str) -> list[ToolCall]:
        """Write a turn of the policy down. Returns its calls. A call that cannot be read has arguments that say so."""
        read = read_turn(response, self._names, tools=self.tools)
        calls = list(read.calls if self._names else ())
        shown = [
            {
                "id": call_id(index, call),
                "name": call.name or "unknown",
                "arguments": call.error or json.dumps(dict(call.arguments)),
            }
            for index, call in enumerate(calls)
        ]
        content = without_end(read.content if calls else response)
        self._add(_types().AssistantMessage(content=content, tool_calls=shown or None), is_sampled=True)
        called = "tool_calls" if calls else reason
        self._trace.calls.append(load_package().ModelCall(node=len(self._trace.nodes) - 1, finish_reason=called))
        return calls

    async def _call(self, call: ToolCall) -> str:
        if call.error:
            return f"error: {call.error}"
        for server in self._servers:
            if call.name in server.names:
                try:
                    return await server.call(call)
                except (Exception, SystemExit) as error:  # a tool is code of another project
                    return described(error)
        return f"error: there is no tool {call.name!r:.60}. The tools are: {', '.join(self._names)}."

    async def _has_stopped(self) -> bool:
        session = importlib.import_module("verifiers.v1.session")
        for hook in self._task.hooks("stop"):
            if await session.call_hook(hook, {load_package().Trace: self._trace}):
                self._trace.stop(hook.__name__)
                return True
        return False

    async def _score(self) -> RewardResult:
        if self.open_turn:
            self._take(self.open_turn, reason="length")
        await self._task.score(self._trace)
        return RewardResult(value=float(self._trace.reward))

    async def _stop(self) -> None:
        for server in self._own:
            await server.close()

    def _add(self, message: Any, *, is_sampled: bool = False) -> None:
        nodes = self._trace.nodes
        parent = len(nodes) - 1 if nodes else None
        nodes.append(load_package().MessageNode(parent=parent, message=message, sampled=is_sampled))


def _types() -> Any:
    return importlib.import_module("verifiers.v1.types")


class _Server:
    """The tools of one toolset, under the names that the package's chat harness gives them.

    The toolset shares its state with the trace of the response that calls, as its own process would by the network.
    """

    def __init__(self, toolset: Any) -> None:
        self.toolset, self.names = toolset, dict[str, Any]()
        with_state = toolset._with_state
        toolset._with_state = lambda function: with_state(_in_thread(function))
        toolset._pull_state = _state

    async def start(self, data: Any = None) -> _Server:
        """Prepare the toolset, for the data of a task unless it is shared, and look up its tools."""
        await self.toolset.setup()
        if data is not None:
            await self.toolset.setup_task(data)
        return await self.look_up()

    async def look_up(self) -> _Server:
        prefix = f"{self.toolset.server_name}_" if self.toolset.server_name else ""
        self._server = importlib.import_module("mcp.server.mcpserver").MCPServer(type(self.toolset).__name__)
        self.toolset.register(self._server)
        self.names = {prefix + tool.name: tool for tool in await self._server.list_tools()}
        return self

    @property
    def schemas(self) -> list[dict[str, Any]]:
        return [
            {
                "type": "function",
                "function": {"name": name, "description": tool.description or "", "parameters": tool.input_schema},
            }
            for name, tool in self.names.items()
        ]

    async def call(self, call: ToolCall) -> str:
        result = await self._server.call_tool(self.names[call.name].name, dict(call.arguments))
        return "\n".join(part.text if part.type == "text" else str(part) for part in result.content)

    async def close(self) -> None:
        await self.toolset._exit_stack.aclose()


async def _state() -> Any:
    return _TRACE.get().state


def _in_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool that delays no other response: a plain function runs in a thread."""
    if inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    async def run(*arguments: Any, **settings: Any) -> Any:
        return await asyncio.to_thread(function, *arguments, **settings)

    return run


_SHARED = dict[Any, asyncio.Future[list[_Server]]]()


def _start_shared(taskset: Any) -> asyncio.Future[list[_Server]]:
    """Return the servers of the taskset's own toolsets, which all responses share. If they could not start, they are
    started again."""
    starting = _SHARED.get(taskset)
    if starting is None or (starting.done() and (starting.cancelled() or starting.exception())):
        servers = map(_Server, type(taskset).toolsets(taskset.config))
        starting = _SHARED[taskset] = asyncio.gather(*(server.start() for server in servers))
    return starting


@cache
def _check_tools(taskset: Any, task: Any) -> list[dict[str, Any]]:
    """Return the schemas of all tools. Raise ConfigError for a task that cannot be played."""
    try:
        toolsets = [*type(task).toolsets(task.config), *type(taskset).toolsets(taskset.config)]
        if obstacle := next(_obstacles(task, toolsets), None):
            raise ConfigError(
                f"environment 'verifiers': {type(task).__name__} has {obstacle}. Ansatz plays prompts, toolsets, stops "
                "and rewards of a trace; leave this out of the tasks."
            )
        servers = _run_in_loop(_look_up(toolsets)).result()
    except AnsatzError:
        raise
    except Exception as error:  # code of another project can raise anything
        kind, what = type(task).__name__, " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"environment 'verifiers': {kind} cannot be examined ({what:.300}). Correct it.") from error
    schemas = [schema for server in servers for schema in server.schemas]
    names = [schema["function"]["name"] for schema in schemas]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"environment 'verifiers': {', '.join(twice)} names several tools. Set TOOL_PREFIX in each.")
    return schemas


async def _look_up(toolsets: list[Any]) -> list[_Server]:
    return [await _Server(toolset).look_up() for toolset in toolsets]


def _obstacles(task: Any, toolsets: list[Any]) -> Iterator[str]:
    """Name the parts of a task that the package itself would have to run."""
    package, session = load_package(), importlib.import_module("verifiers.v1.session")
    kind = type(task)
    for name in ("setup", "finalize"):
        if getattr(kind, name) is not getattr(package.Task, name):
            yield f"a method {name}, which needs a runtime of the package (Toolset.setup_task needs none)"
    if kind.NEEDS_CONTAINER:
        yield "NEEDS_CONTAINER set"
    judges = {judge.reward_name: judge.score for judge in task.plugged_judges()}
    rewards = {reward.__name__: reward for reward in task.hooks("reward")} | judges
    for name, reward in rewards.items():
        runtime = inspect.signature(reward).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            yield f"the reward {name}, which needs a runtime of the package"
    if not rewards:
        yield "no reward"
    for hook in task.hooks("stop"):
        if session.hook_boundary(hook, allow_trace=True) is not package.Trace:
            yield f"the stop {hook.__name__}, which reads requests or responses of a server"
    decorators = importlib.import_module("verifiers.v1.utils.decorators")
    for hook in decorators.discover_decorated(task, "intercept"):
        yield f"the interception {hook.__name__}, which changes requests or responses of a server"
    for toolset in toolsets:
        if getattr(toolset.config, "url", None):
            yield f"the toolset {type(toolset).__name__} at a url"
        if (runtime := getattr(toolset.config, "runtime", None)) and runtime.type != "subprocess":
            yield f"the toolset {type(toolset).__name__}, which needs a runtime of the package ({runtime.type})"


def _run_in_loop(call: Coroutine[Any, Any, Any]) -> Future[Any]:
    """Run a call in the event loop of all toolsets: some keep connections that belong to a loop."""
    return asyncio.run_coroutine_threadsafe(call, event_loop("verifiers"))


async def _in_loop(call: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.wrap_future(_run_in_loop(call))


def _task_of(problem: Problem, sample: Any) -> Any:
    """Return the task that a problem is, or one that is made of a problem of another source. sample: any task."""
    kind, task = type(sample.data), copy.copy(sample)
    if problem.source == "verifiers" and isinstance(stored := problem.meta.get("task"), str):
        task.data = kind.model_validate_json(stored)
    else:
        prompt = [*map(dict, problem.earlier_turns), {"role": "user", "content": problem.question}]
        task.data = kind.model_validate({"id": problem.id, "prompt": prompt, "answer": problem.answer})
    return task
