"""Reads the tool calls in a turn, in the forms that chat templates teach their models.

| family | a call |
|---|---|
| Qwen 2.5 and 3, Hermes | `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, one for each call |
| Qwen 3 Coder | `<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>` |
| Llama 3 | `<|python_tag|>{"name": ..., "parameters": {...}}`, or the object as the whole turn; `;` between calls |
| Llama 3, its own tools | `<|python_tag|>NAME.call(key="value")` |
| Llama 3.2 and 4 | `[NAME(key="value"), ...]` as the whole turn |
| Mistral | `[TOOL_CALLS][{"name": ..., "arguments": {...}, "id": ...}]` |
| Mistral, newer | `[TOOL_CALLS]NAME[CALL_ID]id[ARGS]{...}`, one for each call; the id is optional |
| Phi-4 | `<|tool_call|>[{"name": ..., "arguments": {...}}]<|/tool_call|>`, or `functools[...]` |
| DeepSeek | tool-call tokens around `NAME`, a separator and the arguments, which can be a block of JSON |

Text within a thought is not a call. A turn that begins a call and does not complete it in its form is a call with an
error, so that the policy can be told about the mistake. JSON or a Python list that is the whole turn is a call only if
it names a tool, because it could also be an answer.

A policy can write any of the markers thousands of times. Reading a turn therefore takes time in proportion to its
length: texts are searched from a position that only moves forward, and no regular expression can begin anew at every
marker, or match the same spaces in two ways.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ansatz.json_text import parse_json
from ansatz.python_text import parse_arguments, parse_calls
from ansatz.visible import whole

THOUGHT_END = "</think>"
_FORM = 'Write {"name": NAME, "arguments": {...}}.'
_HALF = "Write characters as they are, or both halves, such as \\ud83d\\ude00."
_END_TOKEN = re.compile(r"<\|[^|<>]{1,40}\|>|</s>|<(end_of_turn|eos)>|<｜[^｜<>]{1,40}｜>")
"""The tokens that end a turn."""
_LONGEST_END_TOKEN = 44
_BETWEEN = re.compile(rf"(?:[\s;]|{_END_TOKEN.pattern})*+")
"""The text that can stand between two calls and follow the last one."""
_CODER_FUNCTION = re.compile(r"\s*+<function=([^>\s]++)>")
_CODER_NAME = re.compile(r"[^>\s]*+")
_MISTRAL_CALL = re.compile(r"\s*+([\w.-]++)\s*+(?:\[CALL_ID\]\s*+([\w-]*+)\s*+)?\[ARGS\]\s*+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call. id: the id that the policy gave it; empty if its form has none. error: why it cannot be run; the other
    fields then hold the parts that could be read. texts: the arguments as they are written, in Qwen 3 Coder's form."""

    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str = ""
    error: str = ""
    texts: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTurn:
    """A turn as its template would have it. content: the text before the calls. calls: empty if there is none."""

    content: str
    calls: tuple[ToolCall, ...] = ()


def read_turn(turn: str, names: Collection[str], *, tools: Sequence[Mapping[str, Any]] = ()) -> ReadTurn:
    """Return the text and the calls of a turn. names: of the tools that there are. tools: their schemas, for the form
    that does not say what is text."""
    thought, end, said = turn.rpartition(THOUGHT_END)
    if not end and "<think>" in turn:
        return ReadTurn(content=turn)  # the thought is still open
    for marker, read in _MARKED.items():
        before, found, rest = said.partition(marker)
        if found:
            calls = tuple(_make_whole(_with_texts(call, tools)) for call in read(rest))
            return ReadTurn(content=thought + end + before, calls=calls)
    calls = tuple(map(_make_whole, _read_unmarked(said, names)))
    return ReadTurn(content=thought + end + ("" if calls else said), calls=calls)


def _with_texts(call: ToolCall, tools: Sequence[Mapping[str, Any]]) -> ToolCall:
    """Return the call. An argument that its tool takes as text is the text as it is written, such as the code 90210."""
    schemas = (tool["function"]["parameters"] for tool in tools if tool["function"]["name"] == call.name)
    properties = next(schemas, {}).get("properties", {}) if call.texts else {}
    texts = {
        name: text
        for name, text in call.texts.items()
        if name in properties and _is_text(properties[name], call.arguments[name])
    }
    return replace(call, arguments={**call.arguments, **texts})


def _is_text(schema: Mapping[str, Any], value: Any) -> bool:
    kinds = [part.get("type") for part in schema.get("anyOf", [schema])]
    return "string" in kinds and all(kind == "string" or (kind == "null" and value is not None) for kind in kinds)


def _make_whole(call: ToolCall) -> ToolCall:
    """Return the call. One with half a character, which JSON and Python can write as \\ud83d, is a call with an
    error."""
    given = (call.name, call.id, call.arguments, call.error)
    name, id_, arguments, error = whole(given)
    if (name, id_, arguments, error) == given:
        return call
    return ToolCall(name=name, id=id_, error=error or f"the call has half of a character. {_HALF}")


def _read_tagged(rest: str) -> Iterator[ToolCall]:
    """Yield the calls of Qwen and Hermes. rest: the text after the first <tool_call>."""
    for part in rest.split("<tool_call>"):
        body, closed, _ = part.partition("</tool_call>")
        body = body if closed else without_end(body)
        if (function := _CODER_FUNCTION.match(body)) is not None:
            texts = dict(_parameters(body, function.end()))
            yield ToolCall(name=function[1], arguments={key: _value(text) for key, text in texts.items()}, texts=texts)
        else:
            yield from _json_calls(body)


def _parameters(body: str, start: int) -> Iterator[tuple[str, str]]:
    """Yield the parameters of Qwen 3 Coder that are complete: <parameter=KEY>, the value on lines of its own or not,
    and </parameter>."""
    opening, closing = "<parameter=", "</parameter>"
    while (start := body.find(opening, start)) >= 0:
        key = _CODER_NAME.match(body, start + len(opening))
        assert key is not None
        start = key.end()  # openings within a key that has no end have none either
        if not key[0] or not body.startswith(">", start):
            continue
        if (end := body.find(closing, start)) < 0:
            return
        yield key[0], body[start + 1 : end].removeprefix("\n").removesuffix("\n")
        start = end + len(closing)


def _python_tag(rest: str) -> Iterator[ToolCall]:
    """Yield the calls of Llama 3: objects, or the call of one of its own tools."""
    text = without_end(rest)
    method = re.match(r"\s*+([\w.]+)\.call(?=\()", text)
    if method is None:
        yield from _json_calls(text)
        return
    try:
        yield ToolCall(name=method[1], arguments=parse_arguments(text[method.end() :]))
    except ValueError:
        yield ToolCall(name=method[1], error=f'the call is not complete. Write {method[1]}.call(key="value").')


def _mistral(rest: str) -> Iterator[ToolCall]:
    """Yield the calls of Mistral: one list of objects, or names with arguments, each after a marker of its own."""
    for part in rest.split("[TOOL_CALLS]"):
        named = _MISTRAL_CALL.match(part)
        if named is None:
            yield from _json_calls(without_end(part))
            continue
        arguments, error = _arguments(_first_value(part[named.end() :]))
        yield ToolCall(name=named[1], id=named[2] or "", arguments=arguments, error=error)


def _deepseek(rest: str) -> Iterator[ToolCall]:
    """Yield the calls of DeepSeek: NAME sep arguments, or "function" sep NAME and a block of JSON. rest: after the
    begin of all calls."""
    begin, end, start = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", -1
    while (at := rest.find(begin, start + 1)) >= 0:
        closed = rest.find(end, at)
        start = len(rest) if closed < 0 else closed
        head, _, body = rest[at + len(begin) : start].partition("<｜tool▁sep｜>")
        before, is_block, block = body.partition("```")
        if is_block:
            head, body = before, block.partition("```")[0].removeprefix("json").strip()
        arguments, error = _arguments(_first_value(body))
        yield ToolCall(name=head.strip(), arguments=arguments, error=error)
    if start < 0:
        yield ToolCall(error="the list of calls is empty.")


_MARKED = {
    "<tool_call>": _read_tagged,
    "<|python_tag|>": _python_tag,
    "[TOOL_CALLS]": _mistral,
    "<|tool_call|>": lambda rest: _json_calls(without_end(rest.partition("<|/tool_call|>")[0])),
    "functools[": lambda rest: _json_calls(without_end("[" + rest)),
    "<｜tool▁calls▁begin｜>": _deepseek,
}
"""The markers that begin a call, each with the function that reads the text after it."""


def _read_unmarked(said: str, names: Collection[str]) -> Iterator[ToolCall]:
    """Yield the calls that are the whole turn, without a marker (Llama 3): objects, or a list of Python calls."""
    text = without_end(said).strip()
    if text.startswith("{"):
        calls = tuple(_json_calls(text))
        if calls and all(call.name in names for call in calls):
            yield from calls
    elif text.startswith("[") and text.endswith(")]"):
        try:
            named = parse_calls(text)
        except ValueError:
            return
        if named and all(call.name in names for call in named):
            for name, arguments in named:
                error = f"the arguments of {name} are not values. Write {name}(key=value)."
                yield ToolCall(name=name, arguments=arguments or {}, error=error if arguments is None else "")


def _json_calls(text: str) -> Iterator[ToolCall]:
    """Yield the calls in JSON: one object, several with `;` or nothing between them, or a list of objects."""
    values, at = list[Any](), 0
    while True:
        at = _BETWEEN.match(text, at).end()  # pyright: ignore[reportOptionalMemberAccess]
        if at == len(text) and values:
            break
        try:
            value, at = _decode(text, at)
        except ValueError as error:
            if values and text[at] not in "{[":
                break  # text after the calls
            yield ToolCall(error=f"the call is not valid JSON ({error}). {_FORM}")
            return
        values += cast("list[Any]", value) if isinstance(value, list) else [value]
        if not values:
            break
    if not values:
        yield ToolCall(error=f"the list of calls is empty. {_FORM}")
    for value in values:
        yield _json_call(value)


def _json_call(value: Any) -> ToolCall:
    if not isinstance(value, dict):
        return ToolCall(error=f"a call is {_show(value)}, expected an object. {_FORM}")
    call = cast("dict[str, Any]", value)
    inner = call.get("function")
    if isinstance(inner, dict):  # as OpenAI writes it
        call = {**call, **cast("dict[str, Any]", inner)}
    elif isinstance(inner, str) and "name" not in call:
        call = {**call, "name": inner}
    name, id_ = call.get("name"), call.get("id")
    given = next((call[key] for key in ("arguments", "parameters") if key in call), {})
    if not isinstance(name, str) or not name:
        return ToolCall(error=f"the call has the name {_show(name)}, expected the name of a tool. {_FORM}")
    arguments, error = _arguments(given)
    return ToolCall(name=name, arguments=arguments, id=id_ if isinstance(id_, str) else "", error=error)


def _arguments(given: Any) -> tuple[dict[str, Any], str]:
    """Return the arguments as an object, and the fault in them, or "". They can be the text of an object."""
    if isinstance(given, str):
        try:
            given = parse_json(given) if given.strip() else {}
        except ValueError as error:
            return {}, f"the arguments are not valid JSON ({error}). {_FORM}"
    if given is None:
        given = {}
    if not isinstance(given, dict):
        return {}, f"the arguments are {_show(given)}, expected an object. {_FORM}"
    return cast("dict[str, Any]", given), ""


def _first_value(text: str) -> Any:
    """Return the JSON value at the beginning of a text; the text itself if there is none, for the message about it."""
    text = text.lstrip()
    try:
        return _decode(text, 0)[0]
    except ValueError:
        return without_end(text) or None


def _decode(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value at a place of a text, and where it ends. Raise ValueError if there is none."""
    try:
        _, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return parse_json(text[start:end]), end


def _value(text: str) -> Any:
    """Return a parameter of Qwen 3 Coder: JSON if it is, otherwise the text."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def without_end(text: str) -> str:
    """Return the text without spaces and the tokens that end a turn."""
    end = at = len(text)
    while True:
        while at and (text[at - 1] == ";" or text[at - 1].isspace()):
            at -= 1
        start = text.rfind("<", max(at - _LONGEST_END_TOKEN, 0), at)
        if start < 0 or not _END_TOKEN.fullmatch(text, start, at):
            return text[:end].rstrip()
        end = at = start


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 40 else f"{text[:37]}..."


_DECODER = json.JSONDecoder()
