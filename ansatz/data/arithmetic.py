"""Whole-number arithmetic with brackets: an expression of as many operations as its level, 1 to 6."""

from __future__ import annotations

from fractions import Fraction

from ansatz.data.generated import Task, generator
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.trees import Tree, draw_tree, steps, written

MOST_LEVELS = 6
LARGEST_NUMBER = 99
LARGEST_VALUE = 9999  # of any part, so that no step is more than a person does by hand

_QUESTIONS = ("What is {}?", "Compute {}.", "Find the value of {}.", "Evaluate {}.")


@generator(most=MOST_LEVELS)
def arithmetic(draw: KeyedRandom, level: int) -> Task:
    """Divisions are exact, so every step is a whole number."""
    tree = draw_tree(draw, level, ops="+-*/", number=_number, fits=_fits)
    question = draw.pick(_QUESTIONS).format(tree)
    return Task(question=question, answer=written(tree.value), steps=steps(tree), key=tree.key)


def _number(draw: KeyedRandom) -> Fraction:
    return Fraction(draw.between(2, LARGEST_NUMBER))


def _fits(tree: Tree) -> bool:
    return tree.value.denominator == 1 and abs(tree.value) <= LARGEST_VALUE
