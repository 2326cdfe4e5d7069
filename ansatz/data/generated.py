"""Generated problems as a lazy sequence: the part that all generators share.

Problem i depends only on (source, seed, split, i) and on the source's settings. A hash of the mathematical content of a
problem assigns it to one split, and a problem that is assigned to the other split is drawn again. So the splits are
disjoint by construction, for all seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ansatz.data.base import ComputedProblems
from ansatz.data.keyed_random import KeyedRandom, hash64
from ansatz.errors import ConfigError
from ansatz.types import Problem

SPLITS = ("train", "heldout")
HELDOUT_FRAC = 1 / 8  # expected fraction of all contents that are held out


def split_of(content: str) -> str:
    """Return the only split that can contain this content, whatever the seed."""
    return "heldout" if hash64(content) < HELDOUT_FRAC * 2**64 else "train"


KEPT = 4096
"""The first problems are kept once they are made, because the checks before a run read them several times."""


class LazyProblems(ComputedProblems):
    """Problems 0 to size-1 of one source, split and seed. compute: returns the problem of this sequence with an
    index."""

    def __init__(
        self, source: str, compute: Callable[[LazyProblems, int], Problem], *, split: str, size: int, seed: int
    ) -> None:
        """Raise ConfigError for an unknown split or an empty sequence."""
        if split not in SPLITS:
            raise ConfigError(f"{source}: split = {split!r}, expected {' or '.join(map(repr, SPLITS))}.")
        if size < 1:
            raise ConfigError(f"{source}: count = {size}, expected 1 or more.")
        super().__init__(partial(compute, self), size)
        self.source, self.split, self.seed = source, split, seed
        self._made = dict[int, Problem]()

    def at(self, index: int) -> Problem:
        if index >= KEPT:
            return super().at(index)
        if index not in self._made:
            self._made[index] = super().at(index)
        return self._made[index]

    def id_of(self, index: int) -> str:
        return f"{self.source}-{self.split}-{self.seed}-{index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem before it has an id and a split.

    steps: lines of the solution; the boxed answer follows them. key: the mathematical content, independent of wording
    and order, whose hash decides the split.
    """

    question: str
    answer: str
    steps: Sequence[str]
    key: str
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def solution(self) -> str:
        return "\n".join([*self.steps, f"\\boxed{{{self.answer}}}"])


class Source(Protocol):
    """A sequence of problems, each computed when it is accessed.

    count: number of problems. seed: another seed gives other problems.
    min_level: lowest level of difficulty. max_level: highest level; levels are uniform between the two.
    """

    def __call__(
        self, *, split: str, count: int = ..., seed: int = ..., min_level: int = ..., max_level: int = ...
    ) -> Sequence[Problem]: ...


def generator(*, max_level: int) -> Callable[[Callable[[KeyedRandom, int], Task]], Source]:
    """Return a decorator that turns a function (rng, level) -> Task, for levels 1 to max_level, into a source of the
    same name.

    The source raises ConfigError for a setting outside its range.
    """
    highest = max_level

    def wrap(task: Callable[[KeyedRandom, int], Task]) -> Source:
        def source(
            *, split: str, count: int = 50_000, seed: int = 0, min_level: int = 1, max_level: int = highest
        ) -> Sequence[Problem]:
            if not 1 <= min_level <= max_level <= highest:
                raise ConfigError(
                    f"{task.__name__}: min_level = {min_level} and max_level = {max_level}, "
                    f"expected 1 <= min_level <= max_level <= {highest}."
                )
            compute = partial(_problem, task=task, levels=(min_level, max_level))
            return LazyProblems(task.__name__, compute, split=split, size=count, seed=seed)

        source.__name__, source.__doc__, source.__module__ = task.__name__, task.__doc__, task.__module__
        return source

    return wrap


def _problem(
    problems: LazyProblems, index: int, *, task: Callable[[KeyedRandom, int], Task], levels: tuple[int, int]
) -> Problem:
    rng = KeyedRandom(problems.source, problems.seed, problems.split, index)
    level = rng.between(*levels)
    drawn = task(rng, level)
    while split_of(drawn.key) != problems.split:
        drawn = task(rng, level)
    return Problem(
        id=problems.id_of(index),
        question=drawn.question,
        answers=(drawn.answer,),
        source=problems.source,
        split=problems.split,
        level=str(level),
        solution=drawn.solution,
        meta=dict(drawn.meta),
    )
