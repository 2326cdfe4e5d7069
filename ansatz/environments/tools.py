"""Tools that the policy calls as its chat template writes calls (see `tool_calls`), and that answer as `tool` messages.

The tools are Python functions. Their names, docstrings and annotations become the JSON schemas that the chat template
shows in the prompt.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from ansatz.environments.base import Environment, Message
from ansatz.environments.tool_calls import ToolCall, read_turn
from ansatz.errors import ConfigError
from ansatz.visible import error_text

_STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that a policy can call. name: the name of the function. arguments: checks the arguments of a call."""

    name: str
    function: Callable[..., Any]
    arguments: type[BaseModel]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Tool:
        """Return the function as a tool. Raise ConfigError for a parameter that a call cannot name, or without an
        annotation."""
        name = getattr(function, "__name__", repr(function))
        hints, fields = get_type_hints(function), dict[str, Any]()
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
                raise ConfigError(f"the tool {name!r} has the parameter {parameter}, which a call cannot name.")
            if parameter.name not in hints:
                raise ConfigError(
                    f"the parameter {parameter.name!r} of the tool {name!r} has no annotation. Add one, such as "
                    f"{parameter.name}: str, from which the prompt describes it."
                )
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[parameter.name] = (hints[parameter.name], Field(default))
        return cls(name=name, function=function, arguments=create_model(name, __config__=_STRICT, **fields))

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the function, as chat templates and OpenAI's API take it."""
        parameters = _without_titles(self.arguments.model_json_schema())
        parameters.pop("additionalProperties", None)
        described = {"name": self.name, "description": inspect.getdoc(self.function) or "", "parameters": parameters}
        return {"type": "function", "function": described}

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Return the result, or an awaitable of it. Raise ToolError for arguments that do not fit."""
        try:
            values = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "arguments"
            raise ToolError(f"{self.name}: {where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
        return self.function(**{name: getattr(values, name) for name in type(values).model_fields})


class ToolError(ValueError):
    """A call that cannot be run. The message is for the policy."""


class ToolEnvironment(Environment):
    """functions: the tools, plain functions. A turn without a call is the last one.

    Every call is answered by one `tool` message, in the order of the calls. An error of a tool, and a call that cannot
    be read, is a message that begins with "error: ".
    """

    def __init__(self, functions: Sequence[Callable[..., Any]], *, instant: bool = False) -> None:
        self._tools = {tool.name: tool for tool in map(Tool.of, functions)}
        self.tools, self.roles = [tool.schema for tool in self._tools.values()], ("tool",)
        self.instant = instant

    def step(self, response: str) -> Any:
        calls = read_turn(response, self._tools, tools=self.tools).calls
        return [_message(index, call, self._run(call)) for index, call in enumerate(calls)] or None

    def show(self, observation: str) -> list[Message]:
        """Return the answer to an error of the environment itself, such as a missed deadline: that to the first
        call."""
        return [_message(0, ToolCall(name=next(iter(self._tools))), observation)]

    def _run(self, call: ToolCall) -> Any:
        """Return the result of a call, or an awaitable of it; a text that begins with "error: " if there is none."""
        try:
            if call.error:
                raise ToolError(call.error)
            if call.name not in self._tools:
                raise ToolError(f"there is no tool {call.name!r:.60}. The tools are: {', '.join(self._tools)}.")
            return self._tools[call.name].call(call.arguments)
        except (Exception, SystemExit) as error:  # a tool is code of a user
            return described(error)


class AsyncToolEnvironment(ToolEnvironment):
    """The same with `async` functions, which are awaited one after the other. close: called when the response has
    ended."""

    def __init__(
        self, functions: Sequence[Callable[..., Awaitable[Any]]], *, close: Callable[[], None] | None = None
    ) -> None:
        super().__init__(functions)
        if close is not None:
            self.close = close

    async def step(self, response: str) -> Any:
        messages = list[Message]()
        for index, call in enumerate(read_turn(response, self._tools, tools=self.tools).calls):
            result = self._run(call)
            try:
                result = await result if inspect.isawaitable(result) else result
            except (Exception, SystemExit) as error:
                result = described(error)
            messages.append(_message(index, call, result))
        return messages or None


def call_id(index: int, call: ToolCall) -> str:
    """Return the id of a call, or one for its place in the turn: nine letters and digits, as Mistral's templates
    ask."""
    return call.id or f"call{index:05d}"


def described(error: BaseException) -> str:
    """Return an error as a policy sees it."""
    text = error_text(error)
    return f"error: {text}" if isinstance(error, ToolError) else f"error: {type(error).__name__}: {text}"


def _message(index: int, call: ToolCall, result: Any) -> Message:
    text = result if isinstance(result, str) else "" if result is None else str(result)
    return {"role": "tool", "name": call.name, "tool_call_id": call_id(index, call), "content": text}


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without the titles that pydantic adds, which would only make prompts longer."""
    schema.pop("title", None)
    for properties in [schema.get("properties", {}), schema.get("$defs", {})]:
        for value in properties.values():
            if isinstance(value, dict):
                _without_titles(value)
    return schema
