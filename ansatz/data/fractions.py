"""Arithmetic of fractions: an expression of as many operations as its level, 1 to 4, its value in lowest terms."""

from __future__ import annotations

from fractions import Fraction

from ansatz.data.generated import Task, generator
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.trees import Tree, draw_tree, steps, written

MOST_LEVELS = 4
LARGEST_DENOMINATOR = 12
LARGEST_PART = 999  # of any numerator or denominator on the way

_QUESTIONS = ("What is {} in lowest terms?", "Compute {} and reduce it.", "Write {} as one fraction in lowest terms.")


@generator(most=MOST_LEVELS)
def fractions(draw: KeyedRandom, level: int) -> Task:
    """A value that is whole is answered as a whole number."""
    tree = draw_tree(draw, level, ops="+-*/", number=_fraction, fits=_fits)
    question = draw.pick(_QUESTIONS).format(tree)
    return Task(question=question, answer=written(tree.value), steps=steps(tree), key=tree.key)


def _fraction(draw: KeyedRandom) -> Fraction:
    """Between 0 and 2, no whole number."""
    while True:
        bottom = draw.between(2, LARGEST_DENOMINATOR)
        value = Fraction(draw.between(1, 2 * bottom - 1), bottom)
        if value.denominator > 1:
            return value


def _fits(tree: Tree) -> bool:
    return max(abs(tree.value.numerator), tree.value.denominator) <= LARGEST_PART
