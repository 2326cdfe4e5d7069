"""Arithmetic with fractions. The level, 1 to 4, is the number of operations; the answer is in lowest terms."""

from __future__ import annotations

from fractions import Fraction

from ansatz.data.generated import Task, generator
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.trees import Tree, random_tree, steps

MAX_LEVEL = 4
LARGEST_DENOMINATOR = 12
LARGEST_PART = 999  # of any numerator or denominator, intermediate results included

_QUESTIONS = ("What is {} in lowest terms?", "Compute {} and reduce it.", "Write {} as one fraction in lowest terms.")


@generator(max_level=MAX_LEVEL)
def fractions(rng: KeyedRandom, level: int) -> Task:
    """Ask for the value of an expression with fractions. If it is an integer, the answer is written as one."""
    tree = random_tree(rng, level, ops="+-*/", number=_fraction, fits=_fits)
    question = rng.choice(_QUESTIONS).format(tree)
    return Task(question=question, answer=str(tree.value), steps=steps(tree), key=tree.key)


def _fraction(rng: KeyedRandom) -> Fraction:
    """Return a fraction between 0 and 2 that is not an integer."""
    while True:
        bottom = rng.between(2, LARGEST_DENOMINATOR)
        value = Fraction(rng.between(1, 2 * bottom - 1), bottom)
        if value.denominator > 1:
            return value


def _fits(tree: Tree) -> bool:
    return max(abs(tree.value.numerator), tree.value.denominator) <= LARGEST_PART
