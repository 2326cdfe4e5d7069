"""The tables of metrics: formula, unit, healthy range, how to read a change, and how the parts of a step are merged.

A table is a file `metrics.yaml`. `track` has the table of the core, and every other folder of the package may have one,
such as the folder of a feature. `add_table` adds one from outside of the package. The tables are read when the first
metric is looked up. `tools/metric_reference.py` writes docs/metrics.md from them.

A metric has an exact name, or it is a family whose name ends in a placeholder ("reward/<name>") and covers every longer
name with that prefix.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, NamedTuple

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from ansatz.errors import ConfigError
from ansatz.files import read_yaml
from ansatz.registry import suggest

TABLE = "metrics.yaml"
PACKAGE = Path(__file__).parents[1]


class Reduction(StrEnum):
    """How the measurements of several parts (microbatches, minibatches, epochs, ranks) become one number."""

    MEAN = "mean"  # of all things that were measured, whichever part they are in
    SUM = "sum"
    MAX = "max"
    LAST = "last"


class Minimum(NamedTuple):
    """The least value of a metric that makes the value of another metric healthy."""

    metric: str
    value: float

    def __str__(self) -> str:
        return f"{self.metric} is at least {self.value:g}"


def unless(minima: Sequence[Minimum]) -> str:
    """Return the end of a sentence about a limit; empty if nothing excuses a value beyond it."""
    return f", unless {' or '.join(str(minimum) for minimum in minima)}" if minima else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of a table.

    unit: "1" for plain numbers, "fraction" for numbers in 0..1. meaning: how to read a change.
    weight: the things that a mean is taken over, such as tokens; "" for other reductions.
    low, high: the watchdog and the report warn outside of this range. worst_step: every step must keep to it; without
    this, the mean over the window of a rule must. unless: other metrics that excuse a value outside of it. advice: a
    sentence that is added to the warning.
    at_start: the value before the first update of a stage, if it is the same for every policy.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    name: str
    title: str
    formula: str
    unit: str
    healthy: str
    meaning: str
    reduction: Reduction = Reduction.MEAN
    weight: str = ""
    low: float | None = None
    high: float | None = None
    worst_step: bool = False
    unless: tuple[Minimum, ...] = ()
    advice: str = ""
    at_start: float | None = None

    @property
    def is_family(self) -> bool:
        return self.name.endswith(">")

    @property
    def has_range(self) -> bool:
        return self.low is not None or self.high is not None

    def covers(self, name: str) -> bool:
        """Return whether this is the row of the name: its own, or for a family any longer name with its prefix."""
        if not self.is_family:
            return name == self.name
        prefix = self.name[: self.name.rindex("<")]
        return name.startswith(prefix) and len(name) > len(prefix)


@functools.cache
def load_metrics() -> dict[str, Metric]:
    """Return the rows of all tables by name. The table of `track` comes first, then the other folders by their path."""
    rows: dict[str, Metric] = {}
    for file in sorted(PACKAGE.rglob(TABLE), key=lambda file: (file.parent.name != "track", file)):
        _add(rows, file)
    return rows


def add_table(file: Path) -> None:
    """Add the rows of a table outside of the package, such as the table of a stage in a user's file. Adding it again
    changes nothing.

    Raise ConfigError for a row that is incomplete, and for a name that another table has with other words.
    """
    _add(load_metrics(), file)


def _add(rows: dict[str, Metric], file: Path) -> None:
    added = read_table(file)
    for metric in added:
        if rows.get(metric.name, metric) != metric:
            raise ConfigError(
                f"{file}: another table has a metric {metric.name!r} already. Give this one another name."
            )
    rows.update({metric.name: metric for metric in added})


def read_table(file: Path) -> list[Metric]:
    """Return the rows of a table. Raises ConfigError for a file that is not one, and for a row that is incomplete."""
    try:
        data = read_yaml(file)
        return TypeAdapter(list[Metric]).validate_python([{"name": name, **row} for name, row in data.items()])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, key = list(data)[int(first["loc"][0])], ".".join(map(str, first["loc"][1:]))
        raise ConfigError(
            f"{file}: {key} of the metric {name!r}: {first['msg'][0].lower()}{first['msg'][1:]}."
        ) from error
    except (yaml.YAMLError, AttributeError, TypeError) as error:
        raise ConfigError(f"{file} is not a table of metrics, which maps names to mappings: {error}.") from error


def find_metric(name: str) -> Metric | None:
    """Return the row with exactly this name, otherwise the first family that covers it, otherwise None."""
    rows = load_metrics()
    return rows.get(name) or next((row for row in rows.values() if row.covers(name)), None)


def reduction_of(name: str) -> Reduction:
    """Return how measurements of the metric are merged. Raises ValueError for a name without a row."""
    metric = find_metric(name)
    if metric is None:
        check_known([name])
        raise AssertionError("check_known raises for a name without a row")
    return metric.reduction


def check_known(names: Iterable[str]) -> None:
    """Raise ValueError with the names that have no row in a table."""
    unknown = sorted({name for name in names if find_metric(name) is None})
    if unknown:
        hint = suggest(unknown[0], exact_names())
        raise ValueError(
            f"undocumented metrics: {', '.join(unknown)}. Add a row to {TABLE} of its stage or feature, or of "
            f"ansatz/track, and run `make docs`; or fix the name.{hint if 'Did you mean' in hint else ''}"
        )


def exact_names() -> list[str]:
    """Return the names of the metrics that are not families."""
    return [metric.name for metric in load_metrics().values() if not metric.is_family]
