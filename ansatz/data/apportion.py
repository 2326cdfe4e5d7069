"""Whole rows dealt out by weights: the arithmetic of a mixture.

A cell is what one part has of one topic and one level. Its share is the product of its three weights, each as a part of
their sum. Rows are dealt out from the top down: to the parts, then to the topics of each, then to the levels of each of
these. At every stage each one has its exact share of its parent's rows to within one row (Hamilton's method: all get
the whole part of their share, and the largest remainders get the rows that are left).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from ansatz.errors import ConfigError

Key = TypeVar("Key", bound=Hashable)
ANY = ""
"""The one topic, or level, of a mixture that has no weights for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """rows: places of its problems in the part's source."""

    part: int
    topic: str
    level: str
    rows: Sequence[int]

    def __str__(self) -> str:
        named = [f"part {self.part}", self.topic and f"topic {self.topic!r}", self.level and f"level {self.level!r}"]
        return ", ".join(filter(None, named))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Of each part, topic and level; each of the three sums to 1."""

    part: Mapping[int, Fraction]
    topic: Mapping[str, Fraction]
    level: Mapping[str, Fraction]

    def of(self, cell: Cell) -> Fraction:
        return self.part[cell.part] * self.topic[cell.topic] * self.level[cell.level]

    @property
    def roundings(self) -> int:
        """Stages that round; each takes less than a row from a cell, or gives it less than one."""
        return sum(len(shares) > 1 for shares in (self.part, self.topic, self.level))


def shares_of(weights: Mapping[Key, Any], what: str) -> dict[Key, Fraction]:
    """Weights as parts of their sum. ConfigError where there is none, or one that is no number over 0."""
    if not weights:
        raise ConfigError(f"mixture: there are no weights of {what}s; give some, or leave the setting out.")
    for key, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise ConfigError(
                f"mixture: the weight of {what} {key} is {weight!r}, expected a number over 0. "
                "What should have no share is left out."
            )
    exact = {key: Fraction(str(weight)) for key, weight in weights.items()}
    return {key: weight / sum(exact.values()) for key, weight in exact.items()}


def apportioned(count: int, shares: Mapping[Key, Fraction]) -> dict[Key, int]:
    """count dealt out by shares that sum to 1: each gets its share rounded down or up. Equal remainders: the first."""
    exact = {key: count * share for key, share in shares.items()}
    whole = {key: math.floor(number) for key, number in exact.items()}
    by_remainder = sorted(exact, key=lambda key: whole[key] - exact[key])
    for key in by_remainder[: count - sum(whole.values())]:
        whole[key] += 1
    return whole


def dealt(count: int, cells: Sequence[Cell], shares: Shares) -> list[int]:
    """Rows of each cell in a mixture of `count`."""
    rows: dict[tuple[int, str, str], int] = {}
    for part, of_part in apportioned(count, shares.part).items():
        for topic, of_topic in apportioned(of_part, shares.topic).items():
            for level, of_level in apportioned(of_topic, shares.level).items():
                rows[part, topic, level] = of_level
    return [rows[cell.part, cell.topic, cell.level] for cell in cells]


def fits(count: int, cells: Sequence[Cell], shares: Shares, *, repeat: int) -> bool:
    """Whether no problem has to come more than `repeat` times."""
    wanted = dealt(count, cells, shares)
    return all(number <= len(cell.rows) * repeat for number, cell in zip(wanted, cells, strict=True))


def most_rows(cells: Sequence[Cell], shares: Shares, *, repeat: int) -> int:
    """The largest count that fits; 0 where a cell is empty."""
    if not all(cell.rows for cell in cells):
        return 0
    most = min(math.ceil((len(cell.rows) * repeat + shares.roundings) / shares.of(cell)) for cell in cells)
    return next(count for count in range(most, -1, -1) if fits(count, cells, shares, repeat=repeat))
