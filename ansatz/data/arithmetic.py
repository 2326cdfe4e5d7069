"""Integer arithmetic with brackets. The level, 1 to 6, is the number of operations in the expression."""

from __future__ import annotations

from fractions import Fraction

from ansatz.data.generated import Task, generator
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.trees import Tree, joined, steps

MAX_LEVEL = 6
LARGEST_NUMBER = 99
LARGEST_VALUE = 9999  # of any subexpression, so that a person can do every step by hand

_QUESTIONS = ("What is {}?", "Compute {}.", "Find the value of {}.", "Evaluate {}.")


@generator(max_level=MAX_LEVEL)
def arithmetic(rng: KeyedRandom, level: int) -> Task:
    """Ask for the value of an expression whose divisions are exact, so that the result of every step is an integer."""
    tree = _random_tree(rng, level)
    question = rng.choice(_QUESTIONS).format(tree)
    return Task(question=question, answer=str(tree.value), steps=steps(tree), key=tree.key)


def _random_tree(rng: KeyedRandom, size: int) -> Tree:
    """Return a tree of `size` operations. The value of every part is an integer that is not too large."""
    if size == 0:
        return Tree(Fraction(rng.between(2, LARGEST_NUMBER)))
    while True:
        left_size = rng.between(0, size - 1)
        left = _random_tree(rng, left_size)
        right = _random_tree(rng, size - 1 - left_size)
        tree = joined(left, rng.choice("+-*/"), right)
        if tree is not None and tree.value.denominator == 1 and abs(tree.value) <= LARGEST_VALUE:
            return tree
