"""Distributes whole rows by weights: the arithmetic of a mixture.

A stratum holds the rows of one part with one topic and one level. Its share is the product of its three normalised
weights. Rows are distributed from the top down: to the parts, then to the topics of each part, then to the levels of
each topic. At every stage each child gets its exact share of its parent's rows to within one row (Hamilton's method:
everyone gets the integer part of their share, and the largest remainders get the rows that are left).
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
"""Stands for all topics (or all levels) of a mixture that has no weights for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """rows: indices of its problems in the part's source."""

    part: int
    topic: str
    level: str
    rows: Sequence[int]

    def __str__(self) -> str:
        labels = [f"part {self.part}", self.topic and f"topic {self.topic!r}", self.level and f"level {self.level!r}"]
        return ", ".join(filter(None, labels))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The share of each part, topic and level. Each of the three mappings sums to 1."""

    part: Mapping[int, Fraction]
    topic: Mapping[str, Fraction]
    level: Mapping[str, Fraction]

    def of(self, stratum: Stratum) -> Fraction:
        return self.part[stratum.part] * self.topic[stratum.topic] * self.level[stratum.level]

    @property
    def roundings(self) -> int:
        """Return the number of stages that round. Each changes the rows of a stratum by less than one."""
        return sum(len(shares) > 1 for shares in (self.part, self.topic, self.level))


def shares_of(weights: Mapping[Key, Any], what: str) -> dict[Key, Fraction]:
    """Return weights divided by their sum. Raise ConfigError if there are none, or if a weight is not a number above
    0."""
    if not weights:
        raise ConfigError(f"mixture: the setting has no {what} weights. Add some, or remove the setting.")
    for key, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise ConfigError(
                f"mixture: the weight of {what} {key} is {weight!r}, expected a number above 0. "
                "To exclude it, remove it from the weights."
            )
    exact = {key: Fraction(str(weight)) for key, weight in weights.items()}
    return {key: weight / sum(exact.values()) for key, weight in exact.items()}


def apportioned(count: int, shares: Mapping[Key, Fraction]) -> dict[Key, int]:
    """Distribute `count` by shares that sum to 1. Each share is rounded down or up; ties go to the earlier key."""
    exact = {key: count * share for key, share in shares.items()}
    whole = {key: math.floor(number) for key, number in exact.items()}
    by_remainder = sorted(exact, key=lambda key: whole[key] - exact[key])
    for key in by_remainder[: count - sum(whole.values())]:
        whole[key] += 1
    return whole


def rows_per_stratum(count: int, strata: Sequence[Stratum], shares: Shares) -> list[int]:
    """Return the number of rows of each stratum in a mixture of `count` rows."""
    rows: dict[tuple[int, str, str], int] = {}
    for part, of_part in apportioned(count, shares.part).items():
        for topic, of_topic in apportioned(of_part, shares.topic).items():
            for level, of_level in apportioned(of_topic, shares.level).items():
                rows[part, topic, level] = of_level
    return [rows[stratum.part, stratum.topic, stratum.level] for stratum in strata]


def fits(count: int, strata: Sequence[Stratum], shares: Shares, *, repeat: int) -> bool:
    """Return whether a mixture of `count` rows needs no problem more than `repeat` times."""
    wanted = rows_per_stratum(count, strata, shares)
    return all(number <= len(stratum.rows) * repeat for number, stratum in zip(wanted, strata, strict=True))


def max_rows(strata: Sequence[Stratum], shares: Shares, *, repeat: int) -> int:
    """Return the largest count that fits; 0 if a stratum is empty."""
    if not all(stratum.rows for stratum in strata):
        return 0
    upper = min(math.ceil((len(stratum.rows) * repeat + shares.roundings) / shares.of(stratum)) for stratum in strata)
    return next(count for count in range(upper, -1, -1) if fits(count, strata, shares, repeat=repeat))
