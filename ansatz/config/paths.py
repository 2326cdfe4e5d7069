"""Finds the files that a recipe names: next to the recipe first, and then in the current folder.

A recipe can then be kept in one folder with its data, rewards and templates, and be started from anywhere. Settings on
the command line, and installed recipes, are relative to the current folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

MODEL_KEYS = ("path", "model", "teacher")
"""The keys whose value can be the folder of a model."""
TEXT_KEYS = ("preset", "template", "name", "user", "shots")
TEXT_ENDINGS = (".yaml", ".yml", ".txt", ".jsonl")
"""Endings of the presets, prompt templates and worked problems that these keys can name, besides names without one."""
_PLACES = frozenset({*MODEL_KEYS, "paths", "dataset", "shots"})
_NAMES_OR_PATHS = frozenset({"template", "preset"})  # a path here has a suffix or a slash; a name has neither
_NAMES_NEXT_TO = {"name": "source"}  # of a part of the data


def beside_recipe(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the mapping with each relative path that exists in `folder` made absolute.

    Paths are the values of the keys that can name a model, a text or data, at any depth, and names of the form
    `file.py:function`, as keys (rewards) or as values (`source`, `name`). Everything else stays as it is.
    """
    return {
        _code(key, folder): _value("" if _NAMES_NEXT_TO.get(key) in data else key, value, folder)
        for key, value in data.items()
    }


def _value(key: str, value: Any, folder: Path) -> Any:
    if isinstance(value, Mapping):
        settings = cast("Mapping[str, Any]", value)
        kept = {"model": settings["model"]} if key == "judge" and "model" in settings else {}  # on a server
        return {**beside_recipe(settings, folder), **kept}
    if isinstance(value, list):
        return [_value(key, item, folder) for item in cast(Sequence[Any], value)]
    if not isinstance(value, str):
        return value
    return _code(_file(value, folder) if can_be_place(key, value) else value, folder)


def can_be_place(key: str, value: str) -> bool:
    """Tell whether the value of a key in a recipe can be the path of a file or a folder, rather than only a name."""
    if key in _NAMES_OR_PATHS:
        return "/" in value or bool(Path(value).suffix)
    return key in _PLACES or (key in TEXT_KEYS and value.endswith(TEXT_ENDINGS))


def _file(value: str, folder: Path) -> str:
    path = folder / value
    return str(path.resolve()) if value and path.exists() else value


def _code(value: str, folder: Path) -> str:
    file, colon, function = value.rpartition(":")
    return f"{_file(file, folder)}:{function}" if colon and file.endswith(".py") else value
