"""Arithmetic expressions as trees with exact values: drawn, written with few brackets, worked out in steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from ansatz.data.keyed_random import KeyedRandom

_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2}


@dataclass(frozen=True, slots=True)
class Tree:
    """A number (op ""), or two trees and what joins them: one of + - * /."""

    value: Fraction
    op: str = ""
    left: Tree | None = None
    right: Tree | None = None

    def __str__(self) -> str:
        """With brackets only where the meaning needs them; a number that is no natural one stands in brackets."""
        if not self.op:
            return written(self.value)
        assert self.left is not None
        assert self.right is not None
        left = _part(self.left, _BINDS[self.op])
        right = _part(self.right, _BINDS[self.op] + (self.op in "-/"))
        return f"{left} {self.op} {right}"

    @property
    def key(self) -> str:
        """The same for all trees that are written alike, or that differ in the order of terms or factors alone."""
        if not self.op:
            return written(self.value)
        pair = "+-" if self.op in "+-" else "*/"
        return "(" + " ".join(sorted(self._parts(pair, pair[0]))) + ")"

    def _parts(self, pair: str, sign: str) -> list[str]:
        """The terms (pair "+-") or factors ("*/"), each with its sign, through all brackets of the same pair."""
        if not self.op or self.op not in pair:
            return [sign + self.key]
        assert self.left is not None
        assert self.right is not None
        turned = pair[(pair.index(sign) + pair.index(self.op)) % 2]
        return [*self.left._parts(pair, sign), *self.right._parts(pair, turned)]


def joined(left: Tree, op: str, right: Tree) -> Tree | None:
    """The two as one tree; None for a division by zero."""
    a, b = left.value, right.value
    if op == "/" and b == 0:
        return None
    return Tree(a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a / b, op, left, right)


def draw_tree(
    draw: KeyedRandom, size: int, *, ops: str, number: Callable[[KeyedRandom], Fraction], fits: Callable[[Tree], bool]
) -> Tree:
    """A tree of `size` operations, each of whose inner trees `fits`."""
    if size == 0:
        return Tree(number(draw))
    while True:
        left_size = draw.between(0, size - 1)
        left = draw_tree(draw, left_size, ops=ops, number=number, fits=fits)
        right = draw_tree(draw, size - 1 - left_size, ops=ops, number=number, fits=fits)
        tree = joined(left, draw.pick(ops), right)
        if tree is not None and fits(tree):
            return tree


def steps(tree: Tree) -> list[str]:
    """One equation for each operation, inner ones first: "12 * 3 = 36"."""
    if tree.left is None or tree.right is None:
        return []
    left, right = (_bracketed(part.value) for part in (tree.left, tree.right))
    return [*steps(tree.left), *steps(tree.right), f"{left} {tree.op} {right} = {written(tree.value)}"]


def written(value: Fraction) -> str:
    """In lowest terms, a whole number without a denominator: "-3/4", "5"."""
    return str(value)


def _bracketed(value: Fraction) -> str:
    return written(value) if value >= 0 and value.denominator == 1 else f"({written(value)})"


def _part(tree: Tree, binds: int) -> str:
    if not tree.op:
        return _bracketed(tree.value)
    return str(tree) if _BINDS[tree.op] >= binds else f"({tree})"
