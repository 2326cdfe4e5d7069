"""Short stories with numbers that are too long to compute with in the head, for training with a calculator.

Some demonstrations call the calculator (`environments/calculator.py`), the others write down each result at once. A
small model learns the form of both, but it can get only the first kind right. The level is the number of equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ansatz.data.generated import LazyProblems, split_of
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.stories import CONTAINERS, NAMES, THINGS
from ansatz.errors import ConfigError
from ansatz.types import Problem

MAX_STEPS = 4
MAX_DIGITS = 6
_GAINS = ("Then {p} buys {a} more.", "Then {p} finds {a} more.", "Then {p} gets {a} more.")
_LOSSES = ("Then {p} sells {a}.", "Then {p} loses {a}.", "Then {p} gives away {a}.")


def long_numbers(
    *, split: str, count: int = 50_000, seed: int = 0, max_steps: int = 2, digits: int = 3, call_rate: float = 0.2
) -> Sequence[Problem]:
    """Return stories about a product of two long numbers and later additions or subtractions, each computed when
    accessed.

    count: number of problems. seed: another seed gives other problems.
    max_steps: largest number of equations, up to 4; it is uniform from 1 on.
    digits: of each factor, 2 to 6. Later terms have up to twice as many.
    call_rate: fraction (0 to 1) of the demonstrations that call the calculator for every equation. The rate changes no
    question. `meta["observations"]` holds where in `solution` the answers of the calculator are: [start, end] each.

    Raise ConfigError for a setting outside its range.
    """
    for name, value, low, high in (
        ("max_steps", max_steps, 1, MAX_STEPS),
        ("digits", digits, 2, MAX_DIGITS),
        ("call_rate", call_rate, 0, 1),
    ):
        if not low <= value <= high:
            raise ConfigError(f"long_numbers: {name} = {value}, expected {low} to {high}.")
    compute = partial(_problem, max_steps=max_steps, digits=digits, call_rate=call_rate)
    return LazyProblems("long_numbers", compute, split=split, size=count, seed=seed)


def _problem(problems: LazyProblems, index: int, *, max_steps: int, digits: int, call_rate: float) -> Problem:
    rng = KeyedRandom(problems.source, problems.seed, problems.split, index)
    num_steps = rng.between(1, max_steps)
    while True:
        equations, sentences = _story(rng, num_steps=num_steps, digits=digits)
        lines = [f"{expression}={value}" for expression, value in equations]
        if split_of("\n".join(lines)) == problems.split:
            break
    answer, calls = str(equations[-1][1]), rng.uniform() < call_rate
    by_hand = "".join(f"{line}\n" for line in lines)
    work, observations = write_calls(equations) if calls else (by_hand, list[list[int]]())
    return Problem(
        id=problems.id_of(index),
        question=" ".join(sentences),
        answers=(answer,),
        source=problems.source,
        split=problems.split,
        level=str(num_steps),
        solution=f"{work}\\boxed{{{answer}}}",
        meta={"observations": observations, "calls": calls},
    )


def _story(rng: KeyedRandom, *, num_steps: int, digits: int) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the equations as (expression, value), and the sentences of the question."""
    low, high = 10 ** (digits - 1), 10**digits - 1
    person, thing, container = rng.choice(NAMES), rng.choice(THINGS), rng.choice(CONTAINERS)
    many, each = rng.between(low, high), rng.between(low, high)
    amount = many * each
    equations = [(f"{many}*{each}", amount)]
    sentences = [f"{person} has {many} {container}s with {each} {thing}s each."]
    for _ in range(num_steps - 1):
        term, gains = rng.between(low, amount - 1), rng.uniform() < 0.5
        equations.append((f"{amount}{'+' if gains else '-'}{term}", amount + term if gains else amount - term))
        sentences.append(rng.choice(_GAINS if gains else _LOSSES).format(p=person, a=term))
        amount = equations[-1][1]
    return equations, [*sentences, f"How many {thing}s does {person} have?"]


def write_calls(equations: Sequence[tuple[str, object]]) -> tuple[str, list[list[int]]]:
    """Return equations (expression, value) as calls of the calculator, and the places of its answers."""
    text, observations = "", list[list[int]]()
    for expression, value in equations:
        text += f"<calc>{expression}</calc>"
        start = len(text)
        text += f"<result>{value}</result>\n"
        observations.append([start, len(text)])
    return text, observations
