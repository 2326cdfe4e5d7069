"""Grade-school word problems made by program, with exact answers and worked chains of thought.

Problem i is computed from (seed, split, i) and the step and value limits alone: it needs no list in memory, and a
cursor can go on anywhere. The splits are disjoint by construction and for all seeds: a hash of the worked chain
(operations and numbers) and a hash of the question's text each put it into one split, and what falls into the other is
drawn again. The level is the number of steps, "2" to "6".
"""

from __future__ import annotations

from collections.abc import Sequence

from ansatz.data.chains import LARGEST_TERM, Equation, draw_chain, slip
from ansatz.data.generated import LazyProblems, split_of
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.wording import PLAIN_MOVES, tell
from ansatz.errors import ConfigError
from ansatz.types import Problem

WORDINGS = ("full", "plain")
MOST_STEPS = 10  # a longer story would run out of kinds of container


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

    slip_rate: share (0 to 1) of demonstrations that slip and so end in a wrong answer; `answer` stays the true one
    and `meta["slip"]` says so. It changes no question, and what slips at some rate slips the same at every higher one.
    max_value: the largest value in a chain. max_term: the most that is added or taken away at once, 60 unless given.
    wording: "full", or "plain": one person, one kind of thing and one step a sentence, which a model made from nothing
    understands after a fraction of the examples.
    `meta["steps"]` holds the true equations as [left, op, right, value].

    Raises ConfigError for a setting out of its range.
    """
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


class WordProblems(LazyProblems):
    """The problems as a lazy sequence; see `word_problems` for the settings."""

    def __init__(
        self,
        *,
        split: str,
        size: int,
        seed: int,
        min_steps: int,
        max_steps: int,
        slip_rate: float,
        max_value: int,
        max_term: int,
        plain: bool,
    ) -> None:
        super().__init__("word_problems", split=split, size=size, seed=seed)
        self.min_steps, self.max_steps, self.slip_rate = min_steps, max_steps, slip_rate
        self.max_value, self.max_term, self.plain = max_value, max_term, plain

    def make(self, index: int) -> Problem:
        draw = KeyedRandom(self.seed, self.split, index)
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
            id=self.id_of(index),
            question=question,
            answer=str(chain.answer),
            source=self.source,
            split=self.split,
            level=str(steps),
            solution=demonstration(slip(equations, draw) if slipped else equations),
            meta={"steps": [[e.left.value, e.op, e.right.value, e.value] for e in equations], "slip": slipped},
        )


def demonstration(equations: Sequence[Equation]) -> str:
    """One equation a line, then the boxed answer: short, since the sampler pays for every token."""
    return "\n".join([*map(str, equations), f"\\boxed{{{equations[-1].value}}}"])
