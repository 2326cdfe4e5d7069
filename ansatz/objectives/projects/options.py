"""A project's options, and a record of the options that a mapping has used.

A mapping reads an option only in the branch where the project uses it. An option that was set but not used is refused,
so no option can be ignored by accident. Options that the project itself ignores in a branch are declared as such.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ansatz.errors import ConfigError
from ansatz.files import read_yaml


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a project, by its dotted name. meaning: its form here, or why it is refused."""

    name: str
    default: Any
    meaning: str
    refused: bool = False


@functools.cache
def _read_tables() -> dict[str, tuple[Option, ...]]:
    tables = read_yaml(Path(__file__).with_suffix(".yaml"))
    return {name: tuple(Option(**row) for row in rows) for name, rows in tables.items()}


def read_options(table: str) -> tuple[Option, ...]:
    """Return the options in a table of options.yaml: a project's name, or that and one of its losses."""
    return _read_tables()[table]


class Options(Mapping[str, Any]):
    """Values of options, nested as in the project. Reading a value marks the option as used."""

    def __init__(self, values: Mapping[str, Any], *, used: set[str] | None = None, path: str = "") -> None:
        self._values, self._path = values, path
        self._used: set[str] = set() if used is None else used

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, Mapping):
            return Options(cast(Mapping[str, Any], value), used=self._used, path=f"{self._path}{key}.")
        self._used.add(self._path + key)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def ignore(self, *keys: str) -> None:
        """Declare that the project itself ignores these options with the other options as they are."""
        self._used.update(self._path + key for key in keys)

    def overlaid(self, values: Mapping[str, Any]) -> Options:
        """Return the same options with some values replaced or added; both share the record of used options."""
        return Options({**self._values, **values}, used=self._used, path=self._path)

    def unused(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """The options, by dotted name, that differ from `defaults` and were not used."""
        known = flat(defaults)
        return {
            name: value
            for name, value in flat(self._values).items()
            if name not in self._used and not (name in known and known[name] == value)
        }

    def refuse_unused(self, project: str, options: tuple[Option, ...]) -> None:
        """Raise ConfigError for the first unused option that differs from its default."""
        meanings = {option.name: option for option in options}
        for name, value in self.unused({option.name: option.default for option in options}).items():
            option = meanings.get(name)
            if option is not None and option.refused:
                reason = f"it has no counterpart here: {option.meaning}"
            elif option is not None:
                reason = f"with the other options as they are it would not be used ({option.meaning})"
            else:
                reason = "the option is unknown"
            raise ConfigError(f"{project}: {name} = {value!r} is refused, because {reason}.")


def flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return nested options by dotted name."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            out |= flat(cast(Mapping[str, Any], value), f"{path}{key}.")
        else:
            out[path + key] = value
    return out


def nested(options: tuple[Option, ...]) -> dict[str, Any]:
    """Return the defaults of a list of options, nested by their dotted names."""
    out: dict[str, Any] = {}
    for option in options:
        *parents, key = option.name.split(".")
        section = out
        for parent in parents:
            section = section.setdefault(parent, {})
        section[key] = option.default
    return out


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `new` over `old`, nested mappings key by key."""
    out = dict(old)
    for key, value in new.items():
        below = out.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            out[key] = merged(cast(Mapping[str, Any], below), cast(Mapping[str, Any], value))
        else:
            out[key] = value
    return out
