"""Countdown puzzles: combine numbers with + - * / to reach a target. Levels 1 to 4 have 3 to 6 numbers.

`meta` holds `nums` and `target`, so that the reward `countdown` can check any expression; `answer` is one solution.
Levels and numbers follow TinyZero (https://github.com/Jiayi-Pan/TinyZero), which uses 3 and 4 numbers up to 99.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ansatz.data.generated import Task, generator
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.trees import Tree, joined, steps

MAX_LEVEL = 4
LARGEST_NUMBER = 99
LARGEST_VALUE = 2_000  # of any subexpression
TARGETS = (10, 999)

_QUESTION = (
    "Using each of the numbers {nums} exactly once, write an expression with +, -, *, / and brackets that equals "
    "{target}."
)


@generator(max_level=MAX_LEVEL)
def countdown(rng: KeyedRandom, level: int) -> Task:
    """Pose a puzzle that can be solved with positive integers as all intermediate results."""
    while True:
        numbers = [rng.between(1, LARGEST_NUMBER) for _ in range(level + 2)]
        tree = _solved(rng, numbers)
        if TARGETS[0] <= tree.value <= TARGETS[1] and tree.value not in numbers:
            break
    shown, target = rng.shuffled(numbers), int(tree.value)
    return Task(
        question=_QUESTION.format(nums=", ".join(map(str, shown)), target=target),
        answer=str(tree),
        steps=steps(tree),
        key=f"{sorted(numbers)} -> {target}",
        meta={"nums": shown, "target": target},
    )


def _solved(rng: KeyedRandom, numbers: Sequence[int]) -> Tree:
    """Join two random trees until one is left. Every subtree has a positive integer value."""
    trees = [Tree(Fraction(number)) for number in numbers]
    while len(trees) > 1:
        left, right, *remaining = rng.shuffled(trees)
        candidates = [joined(left, op, right) for op in "+-*/"]
        fitting = [tree for tree in candidates if tree is not None and _fits(tree)]
        if not fitting:
            continue  # every result is too large: draw another pair
        trees = [rng.choice(fitting), *remaining]
    return trees[0]


def _fits(tree: Tree) -> bool:
    return 0 < tree.value <= LARGEST_VALUE and tree.value.denominator == 1
