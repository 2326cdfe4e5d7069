"""Problems of another source, as they are or changed one by one when they are accessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansatz.data.base import ComputedProblems, load_problems
from ansatz.errors import ConfigError
from ansatz.types import Problem


def changed(problems: Sequence[Problem], change: Callable[[Problem], Problem]) -> ComputedProblems:
    """Return `change` applied to each problem of a sequence, without a copy of the sequence."""
    return ComputedProblems(lambda index: change(problems[index]), len(problems))


def inner_source(of: Mapping[str, Any], *, split: str, named: str) -> Sequence[Problem]:
    """Return the problems of the source that {source, ...} names, which can have its own split. named: the setting
    `source` in errors."""
    settings = dict(of)
    source = settings.pop("source", None)
    if not isinstance(source, str):
        raise ConfigError(f"{named} = {source!r}, expected the name of a data source, such as jsonl.")
    return load_problems(source, split=str(settings.pop("split", split)), settings=settings)
