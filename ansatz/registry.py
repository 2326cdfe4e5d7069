"""Name -> component. A name is a registered one, or `path/to/file.py:function`, or `package.module:function`.

A component's keyword-only parameters are its settings: `settings_of` reads them from the signature, `bind` checks what a
recipe says against them. Nothing is declared twice.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from ansatz.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


def suggest(name: str, known: Iterable[str]) -> str:
    """' Did you mean X?' for a near miss, else the list of what there is."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(names)}."


class Registry(Generic[F]):
    """Named functions (or classes) of one kind, such as "surrogate". Registering a name twice is an error."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, F] = {}

    def register(self, *names: str) -> Callable[[F], F]:
        """Decorator. Without names the function's own name is used; further names are aliases."""

        def add(function: F) -> F:
            for name in names or (function.__name__,):
                if name in self._entries:
                    raise ValueError(f"{self.kind} {name!r} is registered twice")
                self._entries[name] = function
            return function

        return add

    def names(self) -> list[str]:
        return sorted(self._entries)

    def get(self, name: str) -> F:
        """The component of that name; a name with a colon is loaded from a file or a module."""
        if name in self._entries:
            return self._entries[name]
        if ":" in name:
            return load_attribute(name, kind=self.kind)
        raise ConfigError(f"{self.kind} {name!r} is unknown.{suggest(name, self._entries)}")

    def bind(self, name: str, settings: Mapping[str, Any]) -> Callable[..., Any]:
        """The component with its keyword-only settings filled in; unknown or missing settings are ConfigErrors."""
        return bind(self.get(name), settings, what=f"{self.kind} {name!r}")


def settings_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The keyword-only parameters, in order: what a recipe may set."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def bind(function: Callable[..., Any], settings: Mapping[str, Any], *, what: str) -> Callable[..., Any]:
    known = settings_of(function)
    for key in settings:
        if key not in known:
            raise ConfigError(f"{what} has no setting {key!r}.{suggest(key, known) if known else ' It has none.'}")
    return functools.partial(function, **settings) if settings else function


def load_attribute(reference: str, *, kind: str) -> Any:
    """`file.py:name` or `package.module:name`, imported; what is wrong with it is said in one sentence."""
    place, _, attribute = reference.rpartition(":")
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise ConfigError(f"{kind} {reference!r}: there is no file {place!r} (looked in {Path.cwd()}).")
        spec = importlib.util.spec_from_file_location(f"ansatz_user_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise ConfigError(f"{kind} {reference!r}: cannot import {place!r} ({error}).") from error
    if not hasattr(module, attribute):
        raise ConfigError(f"{kind} {reference!r}: {place!r} has no {attribute!r}.")
    return getattr(module, attribute)
