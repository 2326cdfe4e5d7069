"""Problems made by program, as a lazy sequence: what all generators share.

Problem i is computed from (source, seed, split, i) and the source's settings alone. What a problem says mathematically
is hashed, which puts it into one split, and what falls into the other is drawn again. So the splits are disjoint by
construction and for all seeds.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, overload

from ansatz.data.keyed_random import KeyedRandom
from ansatz.errors import ConfigError
from ansatz.types import Problem

SPLITS = ("train", "heldout")
HELDOUT_SHARE = 1 / 8  # of whatever content is hashed


def split_of(content: str) -> str:
    """The one split that this content may appear in, whatever the seed."""
    digest = hashlib.blake2b(content.encode(), digest_size=8).digest()
    return "heldout" if int.from_bytes(digest, "big") < HELDOUT_SHARE * 2**64 else "train"


class LazyProblems(Sequence[Problem]):
    """Problems 0..size-1 of one source, split and seed, computed when they are asked for."""

    def __init__(self, source: str, *, split: str, size: int, seed: int) -> None:
        """ConfigError for an unknown split or an empty sequence."""
        if split not in SPLITS:
            raise ConfigError(f"{source}: split = {split!r}, expected {' or '.join(map(repr, SPLITS))}.")
        if size < 1:
            raise ConfigError(f"{source}: count = {size}, expected 1 or more.")
        self.source, self.split, self.size, self.seed = source, split, size, seed

    @abstractmethod
    def make(self, index: int) -> Problem: ...

    def id_of(self, index: int) -> str:
        return f"{self.source}-{self.split}-{self.seed}-{index}"

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return [self.make(i) for i in range(*index.indices(self.size))]
        if not -self.size <= index < self.size:
            raise IndexError(f"problem {index} of {self.size}")
        return self.make(index % self.size)

    def __iter__(self) -> Iterator[Problem]:
        return map(self.make, range(self.size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem without its place. steps: of its solution, a line each; the boxed answer follows. key: its
    mathematical content apart from wording and order, by which it falls into a split."""

    question: str
    answer: str
    steps: Sequence[str]
    key: str
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def solution(self) -> str:
        return "\n".join([*self.steps, f"\\boxed{{{self.answer}}}"])


class Source(Protocol):
    """`count` problems, computed when they are asked for; levels are drawn evenly from min to max."""

    def __call__(
        self, *, split: str, count: int = ..., seed: int = ..., min_level: int = ..., max_level: int = ...
    ) -> Sequence[Problem]: ...


def generator(*, most: int) -> Callable[[Callable[[KeyedRandom, int], Task]], Source]:
    """Decorator: a function from (draw, level) to a task, levels 1 to `most`, becomes the source of its name.

    The source raises ConfigError for a setting out of its range.
    """

    def wrap(task: Callable[[KeyedRandom, int], Task]) -> Source:
        def source(
            *, split: str, count: int = 50_000, seed: int = 0, min_level: int = 1, max_level: int = most
        ) -> Sequence[Problem]:
            name = task.__name__
            if not 1 <= min_level <= max_level <= most:
                raise ConfigError(
                    f"{name}: min_level = {min_level} and max_level = {max_level}, "
                    f"expected 1 <= min_level <= max_level <= {most}."
                )
            return _Made(name, task, (min_level, max_level), split=split, size=count, seed=seed)

        source.__name__, source.__doc__, source.__module__ = task.__name__, task.__doc__, task.__module__
        return source

    return wrap


class _Made(LazyProblems):
    def __init__(
        self,
        source: str,
        task: Callable[[KeyedRandom, int], Task],
        levels: tuple[int, int],
        *,
        split: str,
        size: int,
        seed: int,
    ) -> None:
        super().__init__(source, split=split, size=size, seed=seed)
        self._task, self._levels = task, levels

    def make(self, index: int) -> Problem:
        draw = KeyedRandom(self.source, self.seed, self.split, index)
        level = draw.between(*self._levels)
        task = self._task(draw, level)
        while split_of(task.key) != self.split:
            task = self._task(draw, level)
        return Problem(
            id=self.id_of(index),
            question=task.question,
            answer=task.answer,
            source=self.source,
            split=self.split,
            level=str(level),
            solution=task.solution,
            meta=dict(task.meta),
        )
