"""Matrices and the like: `\\begin{pmatrix} ... \\end{pmatrix}`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.values import Unreadable, Value

if TYPE_CHECKING:
    from ansatz.rewards.math_answer.expressions import Expressions

_MATRICES = frozenset(
    {"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array", "psmallmatrix", "bsmallmatrix"}
)
_TRANSPARENT = frozenset({"aligned", "align", "gathered", "split", "equation", "math", "displaymath"})


def matrix_from(parser: Expressions, name: str) -> Value:
    """The environment whose begin was just taken, through its end. Empty last rows are left out."""
    if name in _TRANSPARENT:
        value = parser.expr()
        _end(parser, name)
        return value
    if name == "cases":
        return system_from(parser, name)
    if name not in _MATRICES and name != "vmatrix":
        raise Unreadable(f"the environment {name} has no meaning here")
    rows: list[list[Value]] = [[]]
    while not (parser.token.kind == "env" and parser.token.text == f"end {name}"):
        if parser.take_op("\\\\"):
            rows.append([])
        elif not parser.take_op("&"):
            if parser.token.kind == "end":
                raise Unreadable("a matrix that does not end")
            rows[-1].append(parser.expr())
    _end(parser, name)
    rows = [row for row in rows if row]
    if not rows or len({len(row) for row in rows}) != 1:
        raise Unreadable("rows of unequal length")
    return v.Matrix(tuple(tuple(row) for row in rows), determinant=name == "vmatrix")


def system_from(parser: Expressions, name: str) -> Value:
    """Equations that hold together, one a row. A row with a condition beside it is a function by cases: unreadable."""
    clauses: list[Value] = [parser.clause()]
    while parser.take_op("\\\\", ","):
        if parser.token.kind != "env":
            clauses.append(parser.clause())
    _end(parser, name)
    return clauses[0] if len(clauses) == 1 else v.Listing(tuple(clauses))


def _end(parser: Expressions, name: str) -> None:
    if parser.token.kind != "env" or parser.token.text != f"end {name}":
        raise Unreadable(f"{name} does not end")
    parser.at += 1
