"""Fields whose text is JSON: what a table (CSV, or a Parquet file with text columns) makes of chats and objects.

pandas writes them as Python literals ('role' in single quotes), which are read too. Only forms that cannot be meant as
mathematics count: an object, a list of objects, and a list of texts. So the gold answer [1, 2] remains text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from ansatz.json_text import parse_json

_STRUCTURED = re.compile(r"\s*(\{\s*[\"']|\[\s*\{\s*[\"']|\[\s*[\"'])")
_CHAT = re.compile(r"\s*\[\s*\{\s*[\"'](role|from|content|value)[\"']\s*:")


def structured(value: Any) -> Any:
    """Return the object, the list of objects or the list of texts that a text holds as JSON; any other value
    unchanged."""
    return _parsed(value) if isinstance(value, str) and _STRUCTURED.match(value) else value


def is_broken_chat(text: str) -> bool:
    """Return whether a text that is still text begins as a chat: it is cut off, or its JSON is not valid."""
    return _CHAT.match(text) is not None


@lru_cache(maxsize=16)  # a row asks for the same field several times
def _parsed(text: str) -> Any:
    try:
        value = parse_json(text)
    except ValueError:
        value = _literal(text)
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if isinstance(value, list) and value:
        items = cast("Sequence[Any]", value)
        if any(all(isinstance(item, kind) for item in items) for kind in (dict, str)):
            return items
    return text


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
