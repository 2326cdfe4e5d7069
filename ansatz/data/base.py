"""Where problems come from: a data source is `data/<name>.py` with a function `<name>`, found by its file name.

A source is `<name>(*, split, ...settings) -> Iterable[Problem]`. It gives the same problems in the same order on every
call. One that can compute problem i alone returns a Sequence, which is then never held in memory as a whole. A name
with a colon (`path/to/file.py:function`, `package.module:function`) is a user's own.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansatz.errors import ConfigError, DataError
from ansatz.registry import bind, load_attribute, settings_of, suggest
from ansatz.types import Problem

Source = Callable[..., Iterable[Problem]]


def source_names() -> list[str]:
    """The sources of this package: every module beside this one that holds a function of its own name."""
    package = importlib.import_module(__package__ or "ansatz.data")
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if _own_function(m.name) is not None)


def find_source(name: str) -> Source:
    """The source function of that name. Raises ConfigError for an unknown one, with the nearest name."""
    if ":" in name:
        return load_attribute(name, kind="data source")
    names = source_names()
    if name not in names:
        raise ConfigError(f"data source {name!r} is unknown.{suggest(name, names)}")
    function = _own_function(name)
    assert function is not None
    return function


def load_problems(name: str, *, split: str, settings: Mapping[str, Any] | None = None) -> Sequence[Problem]:
    """The problems of one source and split, sized and indexable.

    Raises ConfigError for an unknown source, an unknown setting or a missing one, DataError where the data are wrong or
    there is no problem at all.
    """
    settings = dict(settings or {})
    function, what = find_source(name), f"data source {name!r}"
    call = bind(function, settings, what=what)
    required = [key for key, p in settings_of(function).items() if p.default is inspect.Parameter.empty]
    for key in required:
        if key != "split" and key not in settings:
            raise ConfigError(
                f"{what} needs the setting {key!r}, which the recipe does not give. Add it to its settings."
            )
    found = call(split=split)
    problems = found if isinstance(found, Sequence) else list(found)
    if not problems:
        raise DataError(
            f"{what} has no problem in split {split!r}: expected at least one. Check its path, split and limit."
        )
    return problems


def _own_function(name: str) -> Source | None:
    return getattr(importlib.import_module(f"{__package__}.{name}"), name, None)
