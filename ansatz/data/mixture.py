"""A mixture of sources with weights by source, by topic and by level.

    train:
      source: mixture
      split: train
      parts:
        - {source: jsonl, path: gsm8k.jsonl, weight: 1}
        - {source: jsonl, path: math.jsonl, weight: 3}
      topics: {algebra: 2, geometry: 1}
      topic_key: subject

`apportion` says how many rows each part, topic and level gets. They are taken evenly over its length, and interleaved,
so that the shares hold for every beginning of the mixture as well. A part may be a mixture itself, which is how one
part has other shares of topics than the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from ansatz.data.apportion import ANY, Cell, Shares, dealt, fits, most_rows, shares_of
from ansatz.data.base import load_problems
from ansatz.data.keyed_random import KeyedRandom
from ansatz.errors import ConfigError, DataError
from ansatz.types import Problem

SHOWN = 10  # of what is missing, in a complaint


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
) -> Sequence[Problem]:
    """Problems of several sources in fixed shares.

    parts: each {source, weight, ...settings of that source}, with a split of its own where it has one; weight is 1
    unless given. topics, levels: weights; problems of others are left out. A problem's topic is the field `topic_key`
    of its `meta`. count: rows of the mixture; unless given as many as can be had in these shares. repeat: how often a
    problem may come; the n-th time its id ends with #n. seed: which rows are taken where not all are.

    Without topics and levels no problem is made before it is asked for.
    Raises ConfigError for a setting out of its range, and DataError, with what is wanted and what is there, where some
    part, topic or level has too few problems.
    """
    for name, value in (("count", count), ("repeat", repeat)):
        if value is not None and value < 1:
            raise ConfigError(f"mixture: {name} = {value}, expected 1 or more.")
    shares = Shares(
        part=shares_of({place: part.get("weight", 1) for place, part in enumerate(parts)}, "part"),
        topic=shares_of({ANY: 1} if topics is None else _named(topics), "topic"),
        level=shares_of({ANY: 1} if levels is None else _named(levels), "level"),
    )
    sources = [_source(part, place, split) for place, part in enumerate(parts)]
    cells = [cell for place, source in enumerate(sources) for cell in _cells(place, source, shares, topic_key)]
    if count is None or not fits(count, cells, shares, repeat=repeat):
        most = most_rows(cells, shares, repeat=repeat)
        if count is not None or not most:
            wanted = dealt(count, cells, shares) if count else [1] * len(cells)
            raise DataError(_too_few(cells, wanted, count, most, repeat))
        count = most
    return Mixture(sources, cells, dealt(count, cells, shares), seed=seed)


class Mixture(Sequence[Problem]):
    """The chosen problems in order. counts: of each cell."""

    def __init__(
        self, sources: Sequence[Sequence[Problem]], cells: Sequence[Cell], counts: Sequence[int], *, seed: int
    ) -> None:
        self._sources, self.cells, self.counts = sources, tuple(cells), tuple(counts)
        pairs = [(cell, count) for cell, count in zip(cells, counts, strict=True) if count]
        chosen = [_chosen(cell, count, KeyedRandom("mixture", seed, cell)) for cell, count in pairs]
        even = np.concatenate([(np.arange(len(places)) + 0.5) / len(places) for places in chosen])
        self._places = np.concatenate(chosen)[np.argsort(even, kind="stable")]

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        found = self._places[index]
        return [self._at(place) for place in found] if isinstance(index, slice) else self._at(found)

    def __iter__(self) -> Iterator[Problem]:
        return map(self._at, self._places)

    def _at(self, place: Any) -> Problem:
        part, row, before = map(int, place)
        problem = self._sources[part][row]
        return replace(problem, id=f"{problem.id}#{before + 1}") if before else problem


def _chosen(cell: Cell, count: int, draw: KeyedRandom) -> Any:
    """[count, 3]: the part, the row and how often it came before. Of more rows than are wanted, evenly spaced ones."""
    size = len(cell.rows)
    offset = draw.between(0, size - 1)
    places = np.empty((count, 3), np.int64)
    for index in range(count):
        before, at = divmod(index, size) if count >= size else (0, (index * size + offset) // count)
        places[index] = cell.part, cell.rows[at], before
    return places


def _cells(part: int, source: Sequence[Problem], shares: Shares, topic_key: str) -> list[Cell]:
    """A cell for every topic and level, rows in it or none."""
    kinds = [(topic, level) for topic in shares.topic for level in shares.level]
    rows: Mapping[tuple[str, str], Sequence[int]] = {(ANY, ANY): range(len(source))}
    if kinds != [(ANY, ANY)]:
        rows = _rows_by_kind(source, kinds, topic_key)
    return [Cell(part=part, topic=kind[0], level=kind[1], rows=rows.get(kind, ())) for kind in kinds]


def _rows_by_kind(
    source: Iterable[Problem], kinds: Sequence[tuple[str, str]], topic_key: str
) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {kind: [] for kind in kinds}
    any_topic, any_level = (all(kind[at] == ANY for kind in kinds) for at in (0, 1))
    for row, problem in enumerate(source):
        topic = ANY if any_topic else str(problem.meta.get(topic_key, ANY))
        level = ANY if any_level else problem.level
        if (topic, level) in found:
            found[topic, level].append(row)
    return found


def _source(part: Mapping[str, Any], place: int, split: str) -> Sequence[Problem]:
    settings = {key: value for key, value in part.items() if key not in ("source", "weight", "split")}
    source = part.get("source")
    if not isinstance(source, str):
        raise ConfigError(f"mixture: part {place} has source = {source!r}, expected a name such as jsonl.")
    return load_problems(source, split=str(part.get("split", split)), settings=settings)


def _named(weights: Mapping[Any, float]) -> dict[str, float]:
    return {str(key): weight for key, weight in weights.items()}


def _too_few(cells: Sequence[Cell], wanted: Sequence[int], count: int | None, most: int, repeat: int) -> str:
    lacking = [
        f"{cell} has {len(cell.rows)} of {number}"
        for number, cell in zip(wanted, cells, strict=True)
        if number > len(cell.rows) * repeat
    ]
    shown = "; ".join(lacking[:SHOWN]) + (f"; and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else "")
    start = "mixture: too few problems" + (f" for count = {count}" if count else "")
    if most:
        return f"{start}: {shown}. Take count = {most}, or raise repeat = {repeat}."
    return (
        f"{start}: {shown}. Leave out the weights of what is not there, set topic_key to the field of the topic, "
        "or make a mixture of its own of the part that differs."
    )
