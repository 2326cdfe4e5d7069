"""Which functions of the package receive a marker, when it is in every text that somebody else wrote."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

MARKER = "Zw7Qx"
_MOST_LOOKS = 100
"""Calls of a function that are looked at."""
_PACKAGE = str(Path(__file__).parents[1] / "ansatz") + "/"


def functions_with_marker(call: Callable[[], object]) -> set[str]:
    """Return the functions that the call gives a text with the marker, as file:name. Threads that it starts count."""
    found, skipped, looks = set[CodeType](), set[CodeType](), Counter[CodeType]()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code in found or code in skipped:
            return
        if not code.co_filename.startswith(_PACKAGE) or "/math_answer/" in code.co_filename or code.co_name[0] == "<":
            skipped.add(code)
            return
        looks[code] += 1
        if looks[code] == _MOST_LOOKS:
            skipped.add(code)
        number = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x4)
        names = frame.f_locals
        if any(_has_marker(names.get(name), 2) for name in code.co_varnames[:number]):
            found.add(code)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    return {f"{code.co_filename.removeprefix(_PACKAGE)}:{code.co_qualname}" for code in found}


def _has_marker(value: Any, depth: int) -> bool:
    if isinstance(value, str):
        return MARKER in value
    if depth and isinstance(value, list | tuple):
        return any(_has_marker(item, depth - 1) for item in value[:20])
    if depth and isinstance(value, dict):
        return any(_has_marker(item, depth - 1) for pair in list(value.items())[:20] for item in pair)
    return False
