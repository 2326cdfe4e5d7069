"""Text that others wrote, made harmless for a terminal and a page: control characters are shown instead of obeyed.

A question, a response or the name of a level can contain escape sequences that clear the screen, colour a verdict or
hide a line, and characters that reverse the order of what follows.
"""

from __future__ import annotations

import re
from typing import Any, TextIO

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters except newline and tab, and those that change the direction of text or end a line."""


def visible(text: str) -> str:
    r"""The text with every control character as its code, such as \x1b for the one that begins escape sequences."""
    return _OBEYED.sub(lambda match: _code(ord(match[0])), text)


def _code(point: int) -> str:
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}"


def say(*values: object, file: TextIO | None = None, **how: Any) -> None:
    """Print the values like `print`, with their control characters visible."""
    print(*(visible(str(value)) for value in values), file=file, **how)
