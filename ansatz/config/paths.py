"""Finds the files that a recipe names: next to the recipe first, and then in the current folder.

A recipe can then be kept in one folder with its data, rewards and templates, and be started from anywhere. Settings on
the command line, and installed recipes, are relative to the current folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

_PATHS = frozenset({"path", "paths", "shots", "teacher"})
_NAMES_OR_PATHS = frozenset({"template", "preset"})  # a path here has a suffix or a slash; a name has neither


def beside_recipe(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the mapping with each relative path that exists in `folder` made absolute.

    Paths are the values of the keys `path`, `paths`, `shots`, `teacher`, `template` and `preset` at any depth, and
    names of the form `file.py:function`, as keys (rewards) or as values (`source`, `name`). Everything else stays as it
    is.
    """
    return {_code(key, folder): _value(key, value, folder) for key, value in data.items()}


def _value(key: str, value: Any, folder: Path) -> Any:
    if isinstance(value, Mapping):
        return beside_recipe(cast(Mapping[str, Any], value), folder)
    if isinstance(value, list):
        return [_value(key, item, folder) for item in cast(Sequence[Any], value)]
    if not isinstance(value, str):
        return value
    if key in _PATHS or (key in _NAMES_OR_PATHS and ("/" in value or Path(value).suffix)):
        return _file(value, folder)
    return _code(value, folder)


def _file(value: str, folder: Path) -> str:
    path = folder / value
    return str(path.resolve()) if value and path.exists() else value


def _code(value: str, folder: Path) -> str:
    file, colon, function = value.rpartition(":")
    return f"{_file(file, folder)}:{function}" if colon and file.endswith(".py") else value
