"""Countdown puzzles: make a target out of numbers with + - * /. Level 1 to 4 has 3 to 6 numbers.

`meta` holds nums and target, which the reward `countdown` judges any expression by; `answer` is one that works. Level
and numbers follow TinyZero (https://github.com/Jiayi-Pan/TinyZero), which has 3 and 4 numbers up to 99.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ansatz.data.generated import Task, generator
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.trees import Tree, joined, steps

MOST_LEVELS = 4
LARGEST_NUMBER = 99
LARGEST_VALUE = 2_000  # of any part
TARGETS = (10, 999)

_QUESTION = (
    "Using each of the numbers {nums} exactly once, write an expression with +, -, *, / and brackets that equals "
    "{target}."
)


@generator(most=MOST_LEVELS)
def countdown(draw: KeyedRandom, level: int) -> Task:
    """Each puzzle can be solved in positive whole numbers."""
    while True:
        numbers = [draw.between(1, LARGEST_NUMBER) for _ in range(level + 2)]
        tree = _solved(draw, numbers)
        if TARGETS[0] <= tree.value <= TARGETS[1] and tree.value not in numbers:
            break
    shown, target = draw.shuffled(numbers), int(tree.value)
    return Task(
        question=_QUESTION.format(nums=", ".join(map(str, shown)), target=target),
        answer=str(tree),
        steps=steps(tree),
        key=f"{sorted(numbers)} -> {target}",
        meta={"nums": shown, "target": target},
    )


def _solved(draw: KeyedRandom, numbers: Sequence[int]) -> Tree:
    """Two numbers joined again and again until one tree is left, each part a positive whole number."""
    trees = [Tree(Fraction(number)) for number in numbers]
    while len(trees) > 1:
        left, right, *others = draw.shuffled(trees)
        found = [joined(left, op, right) for op in "+-*/"]
        fitting = [tree for tree in found if tree is not None and _fits(tree)]
        if not fitting:
            continue  # a sum or product over the largest value; another pair is drawn
        trees = [draw.pick(fitting), *others]
    return trees[0]


def _fits(tree: Tree) -> bool:
    return 0 < tree.value <= LARGEST_VALUE and tree.value.denominator == 1
