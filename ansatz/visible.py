"""Text that others wrote, made harmless: control characters are shown instead of obeyed, half characters as their code.

A question, a response or the name of a level can contain escape sequences that clear the screen, colour a verdict or
hide a line, and characters that reverse the order of the text after them. JSON and a tool's result can hold half a
character (a lone surrogate), which no tokenizer, no terminal and no UTF-8 file takes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO, cast

_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters except newline and tab, those that change the direction of text or end a line, and half
characters."""


def visible(text: str) -> str:
    r"""The text with every control character as its code, such as \x1b for the one that begins escape sequences."""
    return _OBEYED.sub(lambda match: _code(ord(match[0])), text)


def whole(value: Any) -> Any:
    r"""Return the value with every half character as its code, such as \ud83d, also within lists and mappings and in
    keys."""
    if isinstance(value, str):
        return str.encode(value, errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {whole(key): whole(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        items = [whole(item) for item in cast("list[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    return value


_FORMULA = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")


def csv_value(value: Any) -> Any:
    """Return a value for a CSV file that no spreadsheet computes: a text that would be a formula, such as =1+1, gets an
    apostrophe before it. Numbers, also as texts such as -5, stay."""
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def write_csv(file: TextIO, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write these fields of rows, and a line with their names, as a table for spreadsheets; see `csv_value`."""
    writer = csv.writer(file, lineterminator="\r\n")  # without \r, older Pythons do not quote it (gh-67044)
    writer.writerow(map(csv_value, names))
    writer.writerows([csv_value(row.get(name)) for name in names] for row in rows)


def error_text(error: BaseException) -> str:
    """Return the message of an error of somebody else's code. Its class can raise anything when it is asked."""
    try:
        return whole(str(error))
    except Exception:
        return "(its text cannot be read)"


def _code(point: int) -> str:
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}"


def say(*values: object, file: TextIO | None = None, **how: Any) -> None:
    """Print the values like `print`, with their control characters visible."""
    print(*(visible(str(value)) for value in values), file=file, **how)
