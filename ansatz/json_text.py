"""Reading JSON that a person, another program or a damaged disk may have written.

`json.loads` raises several kinds of error, and accepts texts that fail later: 1000 nested lists are read, and end in a
RecursionError where they are written. Here every text that cannot be used ends in a ValueError that says why.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from ansatz.errors import AnsatzError
from ansatz.links import read_bytes

MAX_DEPTH = 100
"""Levels of lists and objects. Real files have fewer than 20."""
MAX_INTEGER = 10**300
"""Integers of this size and above do not fit into a float."""


def parse_json(text: str | bytes, *, own: bool = False) -> Any:
    """Parse JSON. Raise ValueError for text that is not JSON or UTF-8, is nested too deeply or has an integer that
    is too large.

    own: the text is from a file that only Ansatz writes. nan, infinities and half characters (lone surrogates), which
    files of other programs may have and Ansatz never writes, are then errors too.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    brackets = text.count("[") + text.count("{")
    try:
        value = json.loads(text, parse_int=_integer, parse_constant=_not_a_number if own else None)
    except RecursionError:
        raise ValueError(f"lists or objects are nested more than {MAX_DEPTH} levels deep") from None
    if brackets > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise ValueError(f"lists or objects are nested more than {MAX_DEPTH} levels deep")
    if own and "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()  # a UnicodeEncodeError is a ValueError
    return value


def read_object(path: Path, *, error: type[AnsatzError], advice: str) -> dict[str, Any]:
    """Read the JSON object in a file that Ansatz wrote.

    Raise `error`, with the advice, if the file cannot be read or has been changed to something else.
    """
    try:
        value = parse_json(read_bytes(path), own=True)
    except (OSError, ValueError) as cause:
        raise error(f"{path} cannot be read ({cause}). {advice}") from cause
    if not isinstance(value, dict):
        raise error(f"{path} holds {type(value).__name__} {value!r:.60}, expected a JSON object. {advice}")
    return cast("dict[str, Any]", value)


def _integer(digits: str) -> int:
    if len(digits) > 300 and abs(int(digits)) >= MAX_INTEGER:
        raise ValueError(f"the integer {digits[:12]}... has {len(digits)} digits, more than 300")
    return int(digits)


def _not_a_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _depth(value: Any) -> int:
    """Count the levels of lists and objects, without recursion."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, list | dict)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth
