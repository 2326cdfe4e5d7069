"""Reads literals and calls in Python's notation, from text that anybody wrote, in time proportional to its length.

Python's own parser takes the square of the length for an f-string, and exponential time for some brackets. Here, each
text or number is converted by itself, and the brackets around them are read token by token.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable
from typing import Any, NamedTuple

from ansatz.json_text import MAX_DEPTH

_STRINGS = "|".join(
    rf"{quote * 3}(?:[^{quote}\\]|\\.|{quote}(?!{quote * 2}))*+{quote * 3}"
    rf"|{quote}(?!{quote * 2})(?:[^{quote}\\\n]|\\.)*+{quote}"
    for quote in "'\""
)
_TOKEN = re.compile(
    rf"(?P<string>[bBrRuU]{{0,2}}(?:{_STRINGS}))"
    r"|(?P<number>0[xXoObB][0-9a-fA-F_]++|(?:[0-9][0-9_]*+(?:\.[0-9_]*+)?+|\.[0-9][0-9_]*+)(?:[eE][+-]?[0-9_]++)?[jJ]?)"
    r"|(?P<name>[^\W\d]\w*+)|(?P<sign>[^\s'\"])|(?P<end>\Z)",
    re.DOTALL,
)
_BLANK = re.compile(r"\s*+")
_NAMED = {"True": True, "False": False, "None": None}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_LARGEST_KEY = 1 << 60
"""Larger integers can have the same hash, and adding many of them to a dict takes the square of their number."""


class PythonToken(NamedTuple):
    kind: str
    text: str


class PythonCall(NamedTuple):
    """A call: name(key=literal, ...). arguments: None if they are anything else."""

    name: str
    arguments: dict[str, Any] | None


def parse_literal(text: str) -> Any:
    """Return the value of a literal, such as `[{'a': 1}]`. Raise ValueError for anything else."""
    reader = _Reader(text)
    value = reader.read_literal(0)
    reader.expect("")
    return value


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the keyword arguments in `(key=literal, ...)`. Raise ValueError for anything else."""
    reader = _Reader(text)
    arguments = reader.read_arguments()
    reader.expect("")
    return arguments


def parse_calls(text: str) -> list[PythonCall]:
    """Return the calls in `[name(key=literal, ...), ...]`. Raise ValueError for anything else, but not for other
    arguments."""
    reader, calls = _Reader(text), list[PythonCall]()
    reader.expect("[")
    while not reader.take("]"):
        parts = [reader.read_name()]
        while reader.take("."):
            parts.append(reader.read_name())
        name, begin = ".".join(parts), reader.at
        try:
            calls.append(PythonCall(name, reader.read_arguments()))
        except ValueError:
            reader.at = begin
            reader.skip_brackets()
            calls.append(PythonCall(name, None))
        if not reader.take(","):
            reader.expect("]")
            break
    reader.expect("")
    return calls


class _Reader:
    """at: the index of the next token. The last one is the end, whose text is empty."""

    def __init__(self, text: str) -> None:
        self.tokens, self.at, place = list[PythonToken](), 0, 0
        while not self.tokens or self.tokens[-1].kind != "end":
            match = _TOKEN.match(text, _BLANK.match(text, place).end())  # pyright: ignore[reportOptionalMemberAccess]
            if match is None:
                raise ValueError("a text without its closing quotation mark")
            self.tokens.append(PythonToken(match.lastgroup or "", match[0]))
            place = match.end()

    @property
    def next(self) -> PythonToken:
        return self.tokens[self.at]

    def take(self, sign: str) -> bool:
        taken = self.next.text == sign
        self.at += taken
        return taken

    def expect(self, sign: str) -> None:
        if self.next.text != sign:
            raise ValueError(f"found {self.next.text[:20]!r}, expected {sign or 'the end'!r}")
        self.at += self.next.kind != "end"

    def read_name(self) -> str:
        if self.next.kind != "name":
            raise ValueError(f"found {self.next.text[:20]!r}, expected a name")
        self.at += 1
        return self.tokens[self.at - 1].text

    def skip_brackets(self) -> None:
        """Go behind the bracket that closes the next one."""
        opened = list[str]()
        while opened or self.next.text == "(":
            if (closing := _CLOSING.get(self.next.text)) is not None:
                opened.append(closing)
            elif (self.next.text in _CLOSING.values() and self.next.text != opened.pop()) or self.next.kind == "end":
                break
            self.at += 1
            if not opened:
                return
        raise ValueError("brackets that are not closed")

    def read_arguments(self) -> dict[str, Any]:
        arguments = dict[str, Any]()
        self.expect("(")
        while not self.take(")"):
            name = self.read_name()
            self.expect("=")
            if name in arguments:
                raise ValueError(f"the argument {name!r} twice")
            arguments[name] = self.read_literal(0)
            if not self.take(","):
                self.expect(")")
                break
        return arguments

    def read_literal(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} brackets within each other")
        if self.next.kind == "string":
            return self._string()
        if self.next.kind == "name" and self.next.text in _NAMED:
            return _NAMED[self.read_name()]
        if self.next.text == "{":
            return self._braces(depth)
        if self.next.text not in _CLOSING:
            return self._number()
        opening = self.next.text
        self.at += 1
        items, comma = list[Any](), True
        while not self.take(_CLOSING[opening]):
            if not comma:
                raise ValueError(f"found {self.next.text[:20]!r}, expected a comma")
            items.append(self.read_literal(depth + 1))
            comma = self.take(",")
        if opening == "[":
            return items
        return items[0] if items and len(items) == 1 and not comma else tuple(items)

    def _string(self) -> Any:
        parts = list[Any]()
        while self.next.kind == "string":
            parts.append(_convert(self.next.text))
            self.at += 1
        if len({type(part) for part in parts}) > 1:
            raise ValueError("text and bytes side by side")
        return type(parts[0])().join(parts)

    def _number(self) -> Any:
        """Read a number with a sign, or a complex one of two parts."""
        value = self._read_sign()
        following = self.tokens[self.at + 1 : self.at + 2]
        if self.next.text in ("+", "-") and following and following[0].text[-1:] in ("j", "J"):
            value += self._read_sign()
        return value

    def _read_sign(self) -> Any:
        negative = self.take("-")
        if not negative:
            self.take("+")
        if self.next.kind != "number":
            raise ValueError(f"found {self.next.text[:20]!r}, expected a value")
        self.at += 1
        value = _convert(self.tokens[self.at - 1].text)
        return -value if negative else value

    def _braces(self, depth: int) -> Any:
        """Read a dict or a set."""
        self.expect("{")
        keys, values, comma = list[Any](), list[Any](), True
        while not self.take("}"):
            if not comma:
                raise ValueError(f"found {self.next.text[:20]!r}, expected a comma")
            keys.append(_check_key(self.read_literal(depth + 1)))
            if len(values) == len(keys) - 1 and self.take(":"):
                values.append(self.read_literal(depth + 1))
            comma = self.take(",")
        if values and len(values) != len(keys):
            raise ValueError("half of a dict")
        return set(keys) if keys and not values else dict(zip(keys, values, strict=True))


def _convert(token: str) -> Any:
    """Return the value of a text or a number."""
    if token.isdecimal() and token[0] != "0":
        return int(token)
    try:
        return ast.literal_eval(token)
    except (SyntaxError, MemoryError) as error:
        raise ValueError(f"{token[:20]!r} is not a literal") from error


def _check_key(key: Any) -> Hashable:
    if (isinstance(key, int) and abs(key) >= _LARGEST_KEY) or not isinstance(key, str | bytes | int | float | None):
        raise ValueError("a key that is not text or a number")
    return key
