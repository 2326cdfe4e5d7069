"""A mixture of sources with weights by source, by topic and by level.

    train:
      source: mixture
      split: train
      parts:
        - {source: jsonl, path: gsm8k.jsonl, weight: 1}
        - {source: jsonl, path: math.jsonl, weight: 3}
      topics: {algebra: 2, geometry: 1}
      topic_key: subject

`apportion` computes how many rows each part, topic and level gets. Rows are taken evenly over the length of a source
and interleaved, so the shares also hold for every prefix of the mixture. A part can itself be a mixture; this gives
one part other topic shares than the next. With `whole`, parts keep their sizes: those are held-out sets.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from ansatz.data.base import ComputedProblems
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.mapped import inner_source
from ansatz.errors import ConfigError, DataError
from ansatz.types import ORIGIN, TEMPLATE, Problem

SHOWN = 10  # strata with too few problems that an error message lists


def mixture(
    *,
    split: str,
    parts: Sequence[Mapping[str, Any]],
    topics: Mapping[Any, float] | None = None,
    levels: Mapping[Any, float] | None = None,
    topic_key: str = "topic",
    count: int | None = None,
    repeat: int = 1,
    seed: int = 0,
    whole: bool = False,
) -> Sequence[Problem]:
    """Return problems of several sources in fixed shares.

    parts: each {source, weight, ...settings of that source}. The weight is 1 by default; a part can name its own split.
    With a `name`, its problems are scored under that name, and rewards can be bound to it. `template` is the prompt
    template of its problems, or with a chat template their user's turn, instead of the recipe's.
    topics, levels: weights. Problems with other topics or levels are left out. The topic of a problem is the field
    `topic_key` of its `meta`.
    count: number of rows; by default the largest number that is possible with these shares.
    repeat: how often a problem can occur. The n-th occurrence has an id that ends with #n.
    seed: decides which rows are taken if not all of them are.
    whole: take every problem of every part once, in turns and in order, instead of shares.

    Without topics and levels, each problem is made only when it is accessed.
    Raise ConfigError for a setting outside its range. Raise DataError, with the wanted and available numbers, if a
    part, topic or level has too few problems.
    """
    for name, value in (("count", count), ("repeat", repeat)):
        if value is not None and value < 1:
            raise ConfigError(f"mixture: {name} = {value}, expected 1 or more.")
    if whole and (count is not None or repeat != 1 or any("weight" in part for part in parts)):
        raise ConfigError("mixture: whole takes every problem once, so count, repeat and weights have no effect.")
    shares = Shares(
        part=shares_of({place: part.get("weight", 1) for place, part in enumerate(parts)}, "part"),
        topic=shares_of({ANY: 1} if topics is None else _with_text_keys(topics), "topic"),
        level=shares_of({ANY: 1} if levels is None else _with_text_keys(levels), "level"),
    )
    sources = [_source(part, place, split) for place, part in enumerate(parts)]
    strata = [stratum for place, source in enumerate(sources) for stratum in _strata(place, source, shares, topic_key)]
    names = [_texts(part, place) for place, part in enumerate(parts)]
    if whole:
        counts = [len(stratum.rows) for stratum in strata]
        return _mixed(sources, strata, counts, names=names, seed=seed, in_turns=True)
    if count is None or not fits(count, strata, shares, repeat=repeat):
        max_count = max_rows(strata, shares, repeat=repeat)
        if count is not None or not max_count:
            wanted = rows_per_stratum(count, strata, shares) if count else [1] * len(strata)
            raise DataError(_too_few(strata, wanted, count, max_count, repeat))
        count = max_count
    return _mixed(sources, strata, rows_per_stratum(count, strata, shares), names=names, seed=seed)


def _mixed(
    sources: Sequence[Sequence[Problem]],
    strata: Sequence[Stratum],
    counts: Sequence[int],
    *,
    names: Sequence[Mapping[str, str]],
    seed: int,
    in_turns: bool = False,
) -> ComputedProblems:
    """Return the problems of the mixture in order. counts: number of rows per stratum. names: the additions of the
    parts to the `meta` of their problems.
    in_turns: one row of each stratum after the other, instead of rows that are spread evenly."""
    pairs = [(stratum, count) for stratum, count in zip(strata, counts, strict=True) if count]
    entries = [_entries(stratum, count, KeyedRandom("mixture", seed, stratum)) for stratum, count in pairs]
    sizes = [1 if in_turns else len(of_stratum) for of_stratum in entries]
    position = np.concatenate(
        [(np.arange(len(of_stratum)) + 0.5) / size for of_stratum, size in zip(entries, sizes, strict=True)]
    )
    ordered = np.concatenate(entries)[np.argsort(position, kind="stable")]

    def make(index: int) -> Problem:
        part, row, before = map(int, ordered[index])
        problem = sources[part][row]
        if more := names[part]:
            problem = replace(problem, meta={**problem.meta, **more})
        return replace(problem, id=f"{problem.id}#{before + 1}") if before else problem

    return ComputedProblems(make, len(ordered))


def _entries(stratum: Stratum, count: int, rng: KeyedRandom) -> Any:
    """Return [count, 3]: part, row, and number of earlier occurrences. If the stratum has more rows than wanted, they
    are evenly spaced."""
    size = len(stratum.rows)
    offset = rng.between(0, size - 1)
    entries = np.empty((count, 3), np.int64)
    for index in range(count):
        before, at = divmod(index, size) if count >= size else (0, (index * size + offset) // count)
        entries[index] = stratum.part, stratum.rows[at], before
    return entries


def _strata(part: int, source: Sequence[Problem], shares: Shares, topic_key: str) -> list[Stratum]:
    """Return one stratum for every combination of topic and level, also if it is empty."""
    kinds = [(topic, level) for topic in shares.topic for level in shares.level]
    rows: Mapping[tuple[str, str], Sequence[int]] = {(ANY, ANY): range(len(source))}
    if kinds != [(ANY, ANY)]:
        rows = _rows_by_kind(source, kinds, topic_key)
    return [Stratum(part=part, topic=kind[0], level=kind[1], rows=rows.get(kind, ())) for kind in kinds]


def _rows_by_kind(
    source: Iterable[Problem], kinds: Sequence[tuple[str, str]], topic_key: str
) -> dict[tuple[str, str], list[int]]:
    rows: dict[tuple[str, str], list[int]] = {kind: [] for kind in kinds}
    any_topic, any_level = (all(kind[at] == ANY for kind in kinds) for at in (0, 1))
    for row, problem in enumerate(source):
        topic = ANY if any_topic else str(problem.meta.get(topic_key, ANY))
        level = ANY if any_level else problem.level
        if (topic, level) in rows:
            rows[topic, level].append(row)
    return rows


def _source(part: Mapping[str, Any], place: int, split: str) -> Sequence[Problem]:
    settings = {key: value for key, value in part.items() if key not in ("name", "template", "weight")}
    return inner_source(settings, split=split, named=f"mixture: part {place} has source")


def _texts(part: Mapping[str, Any], place: int) -> dict[str, str]:
    """Return a part's additions to the `meta` of its problems: its name and its template, if they are given."""
    for key in ("name", "template"):
        if not isinstance(part.get(key, "-"), str) or part.get(key) == "":
            raise ConfigError(f"mixture: part {place} has {key} = {part[key]!r}, expected a text.")
    return {field: part[key] for key, field in (("name", ORIGIN), ("template", TEMPLATE)) if key in part}


def _with_text_keys(weights: Mapping[Any, float]) -> dict[str, float]:
    return {str(key): weight for key, weight in weights.items()}


def _too_few(strata: Sequence[Stratum], wanted: Sequence[int], count: int | None, max_count: int, repeat: int) -> str:
    lacking = [
        f"{stratum} has {len(stratum.rows)} of {number}"
        for number, stratum in zip(wanted, strata, strict=True)
        if number > len(stratum.rows) * repeat
    ]
    shown = "; ".join(lacking[:SHOWN]) + (f"; and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else "")
    start = "mixture: too few problems" + (f" for count = {count}" if count else "")
    if max_count:
        return f"{start}: {shown}. Set count = {max_count} or less, or raise repeat = {repeat}."
    return (
        f"{start}: {shown}. Remove the weights of missing topics or levels, set topic_key to the field with the topic, "
        "or make the part that differs a mixture of its own."
    )


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
