"""Answers that are the same space in other words: general solutions by what they span, and lines and planes.

`A e^x + B e^{-x}` holds the same functions as `C_1 \\cosh x + C_2 \\sinh x`, and a line has many points and directions.
All of them are a vector plus a span of vectors; a function counts as the vector of its values at as many other places.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import cast

from ansatz.rewards.math_answer import parameters
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.functions import determinant, is_vector
from ansatz.rewards.math_answer.relations import assigned
from ansatz.rewards.math_answer.values import Expr, Value

Vector = tuple[Expr, ...]
_MAX_VECTORS, _MAX_ENTRIES = 3, 6


def is_same_space(gold: Value, answer: Value, equal: Callable[[Expr, Expr], bool]) -> bool:
    """Return whether two general solutions, or two lines or planes, are equal as sets."""
    expected, stated = _read_space(gold, of_gold=True), _read_space(answer)
    if expected is None or stated is None or expected[1] != stated[1] or len({expected[0], stated[0]} - {""}) > 1:
        return False
    (start, *vectors), (other_start, *others) = expected[2], stated[2]
    if len(vectors) != len(others) or len(start) != len(other_start):
        return False

    def independent(*columns: Vector) -> bool:
        rows = itertools.combinations(zip(*columns, strict=True), len(columns))
        return any(not equal(v.ZERO, cast("Expr", determinant(v.Matrix(each)))) for each in rows)

    between = tuple(v.add(b, v.negate(a)) for a, b in zip(start, other_start, strict=True))
    spanning = independent(*vectors) and independent(*others)
    return spanning and not any(independent(*vectors, column) for column in (*others, between))


def _read_space(value: Value, *, of_gold: bool = False) -> tuple[str, frozenset[str], list[Vector]] | None:
    """Return the name of a line or a general solution, what is given in it, a vector, and what spans the rest; or None.

    Without a name, `(1 + t, 2t)` in a gold can be a place at the time t, and r(t) is one. Its constants are C_1 and
    C_2; or C alone, or A and B, with other functions than powers of the variable.
    """
    body = parameters.split_declared(value)[0]
    label, side = (assigned(body) if isinstance(body, v.Relation) else None) or (None, body)
    entries: Vector = (side,) if isinstance(side, v.EXPRESSIONS) else ()
    if is_vector(side):
        entries = cast("Vector", side.items if isinstance(side, v.Bracket) else sum(cast("v.Matrix", side).rows, ()))
    names, line = v.names_in(side), len(entries) > 1 and v.names_in(side) <= parameters.LINE_PARAMETERS
    constants = names if line else parameters.constants_in(side)
    variables = (names - constants) & parameters.VARIABLES
    known = 0 < len(constants) <= _MAX_VECTORS and 0 < len(entries) <= _MAX_ENTRIES and len(variables) != line
    if not known or len(variables) > 1 or not all(_is_linear(entry, constants) for entry in entries):
        return None
    several, capital = len(constants) > 1, all(map(parameters.CAPITAL.fullmatch, constants))
    arbitrary = several if capital else several and constants <= {*"ABC"} and _is_transcendental(side)
    if line:
        arbitrary = constants <= {"lambda", "mu"} or not (label is None or isinstance(label, v.Apply))
    if of_gold and not arbitrary and not (capital and _is_transcendental(side)):
        return None
    places = range(1 if line else len(constants) // len(entries) + 1)

    def at(chosen: str) -> Vector:
        numbers: dict[str, Expr] = {name: v.ONE if name == chosen else v.ZERO for name in constants}
        moved = [numbers | {name: v.Name(f"place {k}") for name in variables} for k in places]
        return cast("Vector", tuple(parameters.renamed(entry, each) for each in moved for entry in entries))

    start = at("")
    vectors = [tuple(v.add(a, v.negate(b)) for a, b in zip(at(name), start, strict=True)) for name in constants]
    return getattr(label, "function", getattr(label, "name", "")), names - constants, [start, *vectors]


def _is_transcendental(value: Value) -> bool:
    varies = isinstance(value, v.Power) and v.names_in(value.exponent) & parameters.VARIABLES
    return bool(varies) or isinstance(value, v.Apply) or any(map(_is_transcendental, v.children(value)))


def _is_linear(value: Value, names: frozenset[str]) -> bool:
    held = [part for part in v.children(value) if v.names_in(part) & names]
    known = isinstance(value, v.Sum | v.Name) or (isinstance(value, v.Product) and len(held) == 1)
    return not v.names_in(value) & names or (known and all(_is_linear(part, names) for part in held))
