"""Grade-school word problems made by program, with exact answers and worked chains of thought.

Problem i is computed from (seed, split, i) and the step and value limits alone: it needs no list in memory, and a
cursor can go on anywhere. The splits are disjoint by construction and for all seeds: a hash of the worked chain
(operations and numbers) and a hash of the question's text each put it into one split, and what falls into the other is
drawn again. The level is the number of steps, "2" to "6".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from ansatz.data.chains import LARGEST_TERM, Equation, draw_chain, slip
from ansatz.data.draw import Draw
from ansatz.data.wording import PLAIN_MOVES, tell
from ansatz.errors import ConfigError
from ansatz.types import Problem

SPLITS = ("train", "heldout")
WORDINGS = ("full", "plain")
MOST_STEPS = 10  # a longer story would run out of kinds of container
HELDOUT_SHARE = 1 / 8  # of all chains, and of all texts of a chain


def word_problems(
    *,
    split: str,
    count: int = 50_000,
    seed: int = 0,
    min_steps: int = 2,
    max_steps: int = 6,
    slip_rate: float = 0.0,
    max_value: int = 200,
    max_term: int | None = None,
    wording: str = "full",
) -> Sequence[Problem]:
    """`count` problems, computed when they are asked for.

    slip_rate: share (0 to 1) of demonstrations with one slip that ends in a wrong answer; `answer` stays the true one
    and `meta["slip"]` says so. It changes no question, and what slips at some rate slips the same at every higher one.
    max_value: the largest value in a chain. max_term: the most that is added or taken away at once, 60 unless given.
    wording: "full", or "plain": one person, one kind of thing and one step a sentence, which a model made from nothing
    understands after a fraction of the examples.
    `meta["steps"]` holds the true equations as [left, op, right, value].

    Raises ConfigError for a setting out of its range.
    """
    if split not in SPLITS:
        raise ConfigError(f"word_problems: split = {split!r}, expected {' or '.join(map(repr, SPLITS))}.")
    if count < 1:
        raise ConfigError(f"word_problems: count = {count}, expected 1 or more.")
    if not 2 <= min_steps <= max_steps <= MOST_STEPS:
        raise ConfigError(
            f"word_problems: min_steps = {min_steps} and max_steps = {max_steps}, "
            f"expected 2 <= min_steps <= max_steps <= {MOST_STEPS}."
        )
    if not 0 <= slip_rate <= 1:
        raise ConfigError(f"word_problems: slip_rate = {slip_rate}, expected a share from 0 to 1.")
    if not 50 <= max_value <= 1000:
        raise ConfigError(
            f"word_problems: max_value = {max_value}, expected 50 to 1000: under 50 the answers can be guessed, "
            "over 1000 the sentences make no sense."
        )
    if max_term is not None and not 5 <= max_term <= max_value:
        raise ConfigError(f"word_problems: max_term = {max_term}, expected 5 to max_value = {max_value}.")
    if wording not in WORDINGS:
        raise ConfigError(f"word_problems: wording = {wording!r}, expected {' or '.join(map(repr, WORDINGS))}.")
    return WordProblems(
        split=split,
        size=count,
        seed=seed,
        min_steps=min_steps,
        max_steps=max_steps,
        slip_rate=slip_rate,
        max_value=max_value,
        max_term=LARGEST_TERM if max_term is None else max_term,
        plain=wording == "plain",
    )


@dataclass(frozen=True, kw_only=True)
class WordProblems(Sequence[Problem]):
    """The problems as a lazy sequence; see `word_problems` for the settings."""

    split: str
    size: int
    seed: int
    min_steps: int
    max_steps: int
    slip_rate: float
    max_value: int
    max_term: int
    plain: bool

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return [self._make(i) for i in range(*index.indices(self.size))]
        if not -self.size <= index < self.size:
            raise IndexError(f"problem {index} of {self.size}")
        return self._make(index % self.size)

    def __iter__(self) -> Iterator[Problem]:
        return map(self._make, range(self.size))

    def _make(self, index: int) -> Problem:
        draw = Draw(self.seed, self.split, index)
        steps = draw.between(self.min_steps, self.max_steps)
        while True:
            kinds = PLAIN_MOVES if self.plain else None
            chain = draw_chain(draw, steps=steps, max_value=self.max_value, max_term=self.max_term, kinds=kinds)
            if split_of(demonstration(chain.equations)) == self.split:
                break
        while True:
            question = tell(chain, draw, plain=self.plain)
            if split_of(question) == self.split:
                break
        equations, slipped = chain.equations, draw.uniform() < self.slip_rate
        return Problem(
            id=f"word_problems-{self.split}-{self.seed}-{index}",
            question=question,
            answer=str(chain.answer),
            source="word_problems",
            split=self.split,
            level=str(steps),
            solution=demonstration(slip(equations, draw) if slipped else equations),
            meta={"steps": [[e.left.value, e.op, e.right.value, e.value] for e in equations], "slip": slipped},
        )


def demonstration(equations: Sequence[Equation]) -> str:
    """One equation a line, then the boxed answer: short, since the sampler pays for every token."""
    return "\n".join([*map(str, equations), f"\\boxed{{{equations[-1].value}}}"])


def split_of(content: str) -> str:
    """The one split that this content may appear in, whatever the seed."""
    digest = hashlib.blake2b(content.encode(), digest_size=8).digest()
    return "heldout" if int.from_bytes(digest, "big") < HELDOUT_SHARE * 2**64 else "train"
