"""Trackers that a run can be sent to: one module each, which opens a run of the tracker as a `TrackedRun` describes it.

A sink may raise anything and take any time: `track.follow` uses it in a process of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ansatz.errors import ConfigError, install_command
from ansatz.registry import load_attribute, suggest

Table = Sequence[Sequence[Any]]
"""Rows, each with a value for every column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """The run that a tracker is asked to open. group: of a sweep; empty without one. folder: for files that the tracker
    keeps on this machine. config: the recipe. id: the tracker's own name of the run; empty for a new one."""

    name: str
    group: str
    folder: Path
    config: Mapping[str, Any]
    id: str


class Sink(Protocol):
    """An open run of a tracker. curve: the stage, so that each has steps of its own."""

    @property
    def id(self) -> str:
        """The tracker's name of the run, used to open the run again."""
        ...

    def metrics(self, curve: str, step: int, numbers: Mapping[str, float]) -> None: ...

    def table(self, curve: str, step: int, columns: Sequence[str], rows: Table) -> None:
        """Send responses of a step. The responses of other steps stay."""

    def artifact(self, path: Path) -> None:
        """Send a file. It replaces one of the same name, or becomes its next version."""

    def close(self) -> None:
        """Wait until everything is sent."""


Opens = Callable[[TrackedRun], Sink]
"""The function `open_run` of a module."""


def names() -> list[str]:
    """Return the trackers that have a module here."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def opener(name: str) -> Opens:
    """Return the function that opens a run of this tracker, or of `path/to/file.py:function`.

    Raise ConfigError for an unknown name, and for a package that is not installed.
    """
    if ":" in name:
        return load_attribute(name, kind="tracker")
    if name not in names():
        raise ConfigError(f"tracker {name!r} is unknown.{suggest(name, names())}")
    if importlib.util.find_spec(name) is None:
        raise ConfigError(f"tracker {name!r}: its package is not installed. Run: {install_command(name)}")
    return importlib.import_module(f"{__name__}.{name}").open_run


def package(name: str) -> Any:
    """Return the package of a tracker. A module here shares its name, and type checkers would confuse the two."""
    return importlib.import_module(name)
