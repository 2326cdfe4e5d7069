"""Generated grade-school word problems with exact answers and worked chains of thought.

Problem i depends only on (seed, split, i) and on the limits on steps and values. So no list is held in memory, and a
cursor can resume anywhere. The splits are disjoint by construction, for all seeds: a hash of the worked chain
(operations and numbers) and a hash of the question's text each assign the problem to one split, and a problem that is
assigned to the other split is drawn again. The level is the number of steps, by default "2" to "6".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ansatz.data.chains import LARGEST_TERM, Equation, random_chain, slip
from ansatz.data.generated import LazyProblems, split_of
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.stories import PLAIN_MOVES, tell
from ansatz.errors import ConfigError
from ansatz.types import Problem

WORDINGS = ("full", "plain")
MAX_STEPS = 10  # a longer story would run out of kinds of container


def word_problems(
    *,
    split: str,
    count: int = 50_000,
    seed: int = 0,
    min_steps: int = 2,
    max_steps: int = 6,
    slip_rate: float = 0.0,
    worked_rate: float = 1.0,
    max_value: int = 200,
    max_term: int | None = None,
    wording: str = "full",
) -> Sequence[Problem]:
    """Return grade-school stories with dependent steps, each computed when it is accessed.

    count: number of problems. seed: another seed gives other problems.
    min_steps: smallest number of steps. max_steps: largest number; it is uniform between the two.
    slip_rate: fraction (0 to 1) of the demonstrations that contain a slip and therefore end in a wrong answer. `answer`
    is still the true answer, and `meta["slip"]` is True. The rate changes no question, and a demonstration that slips
    at one rate slips in the same way at every higher rate.
    worked_rate: fraction (0 to 1) of the demonstrations that write their steps down; the others are the boxed answer
    alone. The rate changes no question, and a demonstration that is worked out at one rate is so at every higher rate.
    max_value: largest value in a chain.
    max_term: largest number that is added or subtracted at once; 60 by default.
    wording: "full", or "plain": one person, one kind of thing, one step per sentence. A model trained from scratch
    understands plain stories after a fraction of the examples.
    `meta["steps"]` holds the true equations as [left, op, right, value].

    Raise ConfigError for a setting outside its range.
    """
    if not 2 <= min_steps <= max_steps <= MAX_STEPS:
        raise ConfigError(
            f"word_problems: min_steps = {min_steps} and max_steps = {max_steps}, "
            f"expected 2 <= min_steps <= max_steps <= {MAX_STEPS}."
        )
    for name, rate in (("slip_rate", slip_rate), ("worked_rate", worked_rate)):
        if not 0 <= rate <= 1:
            raise ConfigError(f"word_problems: {name} = {rate}, expected a fraction from 0 to 1.")
    if not 50 <= max_value <= 1000:
        raise ConfigError(
            f"word_problems: max_value = {max_value}, expected 50 to 1000. Below 50 the answers can be guessed; "
            "above 1000 the sentences make no sense."
        )
    if max_term is not None and not 5 <= max_term <= max_value:
        raise ConfigError(f"word_problems: max_term = {max_term}, expected 5 to max_value = {max_value}.")
    if wording not in WORDINGS:
        raise ConfigError(f"word_problems: wording = {wording!r}, expected {' or '.join(map(repr, WORDINGS))}.")
    compute = partial(
        _problem,
        levels=(min_steps, max_steps),
        slip_rate=slip_rate,
        worked_rate=worked_rate,
        max_value=max_value,
        max_term=LARGEST_TERM if max_term is None else max_term,
        plain=wording == "plain",
    )
    return LazyProblems("word_problems", compute, split=split, size=count, seed=seed)


def _problem(
    problems: LazyProblems,
    index: int,
    *,
    levels: tuple[int, int],
    slip_rate: float,
    worked_rate: float,
    max_value: int,
    max_term: int,
    plain: bool,
) -> Problem:
    seed, split = problems.seed, problems.split
    rng = KeyedRandom(seed, split, index)
    steps = rng.between(*levels)
    while True:
        kinds = PLAIN_MOVES if plain else None
        chain = random_chain(rng, steps=steps, max_value=max_value, max_term=max_term, kinds=kinds)
        if split_of(demonstration(chain.equations)) == split:
            break
    while True:
        question = tell(chain, rng, plain=plain)
        if split_of(question) == split:
            break
    equations, slipped = chain.equations, rng.uniform() < slip_rate
    shown = slip(equations, rng) if slipped else equations
    return Problem(
        id=problems.id_of(index),
        question=question,
        answers=(str(chain.answer),),
        source=problems.source,
        split=split,
        level=str(steps),
        solution=demonstration(shown, worked=KeyedRandom(seed, split, index, "worked").uniform() < worked_rate),
        meta={"steps": [[e.left.value, e.op, e.right.value, e.value] for e in equations], "slip": slipped},
    )


def demonstration(equations: Sequence[Equation], *, worked: bool = True) -> str:
    """Write one equation per line if `worked`, then the boxed answer. It is short because the sampler pays for every
    token."""
    return "\n".join([*(map(str, equations) if worked else ()), f"\\boxed{{{equations[-1].value}}}"])
