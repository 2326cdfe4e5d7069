"""Matrices and the like: `\\begin{pmatrix} ... \\end{pmatrix}`."""

from __future__ import annotations

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.functions import determinant
from ansatz.rewards.math_answer.stream import Grammar
from ansatz.rewards.math_answer.values import UnreadableAnswer, Value

_MATRICES = frozenset(
    {"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array", "psmallmatrix", "bsmallmatrix"}
)
_IF = frozenset({"if", "for", "when", "where", "and"})
_OTHERWISE = frozenset({"otherwise", "else", "elsewhere"})
_TRANSPARENT = frozenset({"aligned", "align", "gathered", "split", "equation", "math", "displaymath"})


def matrix_from(parser: Grammar, name: str) -> Value:
    """Return the environment whose `\\begin` was just taken, through its `\\end`. Empty last rows are dropped."""
    if name in _TRANSPARENT:
        value = parser.expr()
        _end(parser, name)
        return value
    if name == "cases":
        return system_from(parser, name)
    if name not in _MATRICES and name != "vmatrix":
        raise UnreadableAnswer(f"the environment {name} is not supported")
    rows: list[list[Value]] = [[]]
    while not (parser.token.kind == "env" and parser.token.text == f"end {name}"):
        if parser.take_op("\\\\"):
            rows.append([])
        elif not parser.take_op("&"):
            if parser.token.kind == "end":
                raise UnreadableAnswer("a matrix is not closed")
            rows[-1].append(parser.expr())
    _end(parser, name)
    rows = [row for row in rows if row]
    if not rows or len({len(row) for row in rows}) != 1:
        raise UnreadableAnswer("the rows of a matrix differ in length")
    matrix = v.Matrix(tuple(tuple(row) for row in rows))
    return determinant(matrix) if name == "vmatrix" else matrix


def system_from(parser: Grammar, name: str) -> Value:
    """Read equations that hold together, one per row. Rows with conditions are a function by cases."""
    clauses: list[Value] = [parser.clause()]
    pieces: list[tuple[Value, Value | None]] = []
    while True:
        comma = parser.take_op(",")
        if _starts_condition(parser):
            pieces.append((clauses[-1], _condition(parser)))
        elif not comma and not parser.take_op("\\\\"):
            break
        elif parser.token.kind != "env":
            clauses.append(parser.clause())
    _end(parser, name)
    if pieces:
        if len(pieces) != len(clauses):
            raise UnreadableAnswer("a case has no condition")
        return v.Cases(tuple(pieces))
    return clauses[0] if len(clauses) == 1 else v.Listing(tuple(clauses))


def _starts_condition(parser: Grammar) -> bool:
    word = parser.token.text.lower() if parser.token.kind == "word" else ""
    return (parser.token.kind == "op" and parser.token.text == "&") or word in _IF or word in _OTHERWISE


def _condition(parser: Grammar) -> Value | None:
    """Return the condition of a case; None for "otherwise"."""
    parser.take_op("&")
    while parser.token.kind == "word" and parser.token.text.lower() in _IF:
        parser.at += 1
    if parser.token.kind == "word" and parser.token.text.lower() in _OTHERWISE:
        parser.at += 1
        return None
    return parser.list()


def _end(parser: Grammar, name: str) -> None:
    if parser.token.kind != "env" or parser.token.text != f"end {name}":
        raise UnreadableAnswer(f"the environment {name} is not closed")
    parser.at += 1
