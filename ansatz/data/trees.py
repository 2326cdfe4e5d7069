"""Arithmetic expressions as trees with exact values: minimal brackets and worked steps."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2}


@dataclass(frozen=True, slots=True)
class Tree:
    """Either a number (op is ""), or two trees, left and right, joined by an operation, one of + - * /."""

    value: Fraction
    op: str = ""
    parts: tuple[Tree, ...] = ()

    def __str__(self) -> str:
        """Return the expression with as few brackets as possible. Negative numbers and fractions are always
        bracketed."""
        if not self.op:
            return str(self.value)
        (left, right), binds = self.parts, _BINDS[self.op]
        return f"{_part(left, binds)} {self.op} {_part(right, binds + (self.op in '-/'))}"

    @property
    def key(self) -> str:
        """Return a text that is equal for trees that are written alike, and for trees that differ only in the order of
        terms or factors."""
        if not self.op:
            return str(self.value)
        pair = "+-" if self.op in "+-" else "*/"
        return "(" + " ".join(sorted(self._parts(pair, pair[0]))) + ")"

    def _parts(self, pair: str, sign: str) -> list[str]:
        """Return the terms (pair "+-") or factors (pair "*/") with their signs, looking through brackets of the same
        pair."""
        if not self.op or self.op not in pair:
            return [sign + self.key]
        left, right = self.parts
        right_sign = pair[(pair.index(sign) + pair.index(self.op)) % 2]
        return [*left._parts(pair, sign), *right._parts(pair, right_sign)]


def joined(left: Tree, op: str, right: Tree) -> Tree | None:
    """Return one tree out of two; None for a division by zero."""
    a, b = left.value, right.value
    if op == "/" and b == 0:
        return None
    return Tree(a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a / b, op, (left, right))


def steps(tree: Tree) -> list[str]:
    """Return one equation per operation, inner ones first, such as "12 * 3 = 36"."""
    if not tree.op:
        return []
    left, right = tree.parts
    return [*steps(left), *steps(right), f"{_bracket(left.value)} {tree.op} {_bracket(right.value)} = {tree.value}"]


def _bracket(value: Fraction) -> str:
    return str(value) if value >= 0 and value.denominator == 1 else f"({value})"


def _part(tree: Tree, binds: int) -> str:
    if not tree.op:
        return _bracket(tree.value)
    return str(tree) if _BINDS[tree.op] >= binds else f"({tree})"
