"""Problems made by program, as a lazy sequence: what the generators beside this file share.

Problem i is computed from (source, seed, split, i) and the levels alone. A task has a `key`, its mathematical content
apart from wording and order; a hash of the key puts it into one split, and what falls into the other is drawn again. So
the splits are disjoint by construction and for all seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from ansatz.data.draw import Draw
from ansatz.data.word_problems import SPLITS, split_of
from ansatz.errors import ConfigError
from ansatz.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem without its place. solution: one step a line, then the boxed answer."""

    question: str
    answer: str
    steps: Sequence[str]
    key: str
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def solution(self) -> str:
        return "\n".join([*self.steps, f"\\boxed{{{self.answer}}}"])


class Made(Sequence[Problem]):
    """`count` problems of the source, computed when they are asked for; levels are drawn evenly from min to max.

    make: (draw, level) -> Task, with most: the highest level there is. ConfigError for a setting out of its range.
    """

    def __init__(
        self,
        source: str,
        make: Callable[[Draw, int], Task],
        *,
        split: str,
        count: int,
        seed: int,
        min_level: int,
        max_level: int,
        most: int,
    ) -> None:
        if split not in SPLITS:
            raise ConfigError(f"{source}: split = {split!r}, expected {' or '.join(map(repr, SPLITS))}.")
        if count < 1:
            raise ConfigError(f"{source}: count = {count}, expected 1 or more.")
        if not 1 <= min_level <= max_level <= most:
            raise ConfigError(
                f"{source}: min_level = {min_level} and max_level = {max_level}, "
                f"expected 1 <= min_level <= max_level <= {most}."
            )
        self._source, self._task, self._split, self._size, self._seed = source, make, split, count, seed
        self._levels = (min_level, max_level)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return [self._make(i) for i in range(*index.indices(self._size))]
        if not -self._size <= index < self._size:
            raise IndexError(f"problem {index} of {self._size}")
        return self._make(index % self._size)

    def __iter__(self) -> Iterator[Problem]:
        return map(self._make, range(self._size))

    def _make(self, index: int) -> Problem:
        draw = Draw(self._source, self._seed, self._split, index)
        level = draw.between(*self._levels)
        task = self._task(draw, level)
        while split_of(task.key) != self._split:
            task = self._task(draw, level)
        return Problem(
            id=f"{self._source}-{self._split}-{self._seed}-{index}",
            question=task.question,
            answer=task.answer,
            source=self._source,
            split=self._split,
            level=str(level),
            solution=task.solution,
            meta=dict(task.meta),
        )
