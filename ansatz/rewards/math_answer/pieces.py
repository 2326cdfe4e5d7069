"""Functions by cases as functions: equal where they are defined, whatever their pieces are.

`|x|` is x for x >= 0 and -x below. The ends of all pieces, and the zeros of what stands in bars, cut the line into
points and open intervals. On each of these, both functions are one expression, or both are not defined.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from ansatz.rewards.math_answer import sets, views
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.functions import mapped, substitute
from ansatz.rewards.math_answer.relations import find_line
from ansatz.rewards.math_answer.values import Expr, Value

Piece = tuple[sets.Interval, Value]


def is_same_function(gold: Value, answer: Value, equal: Callable[[Value, Value], bool]) -> bool:
    """Return whether two functions of one variable, one of them by cases, are equal. Raises Unordered for others."""
    sides = [_read_pieces(value) for value in (gold, answer)]
    held = [v.names_in(piece) for value in (gold, answer) if isinstance(value, v.Cases) for _, piece in value.pieces]
    if len(names := frozenset[str]().union(*held)) != 1:
        raise sets.Unordered
    (name,) = names
    ends = [end for pieces in sides for part, piece in pieces for end in (part.low, part.high, *_zeros(piece, name))]
    points = {place: end for end in ends if math.isfinite(place := sets.approximate(end))}
    marks = sorted(points)
    between = [(low + high) / 2 for low, high in itertools.pairwise(marks)]
    for place in [*marks, *between, *([marks[0] - 1, marks[-1] + 1] if marks else [0.0])]:
        golds, answers = ([*_values_at(pieces, name, place, points.get(place))] for pieces in sides)
        if bool(golds) != bool(answers) or not all(equal(*pair) for pair in itertools.product(golds, answers)):
            return False
    return True


def _read_pieces(value: Value) -> list[Piece]:
    value = mapped(value, _with_bars)
    pairs = views.conditions_of(value) if isinstance(value, v.Cases) else [(value, v.REALS)]
    return [(part, piece) for piece, condition in pairs for part in sets.intervals(condition)]


def _with_bars(part: Expr) -> Expr:
    """Return `max(a, b)` as `(a + b + |a - b|)/2`, and the minimum likewise."""
    if not isinstance(part, v.Apply) or part.function not in ("max", "min") or len(part.arguments) != 2:
        return part
    distance = v.Apply("abs", (v.add(part.arguments[0], v.negate(part.arguments[1])),))
    return v.multiply(v.HALF, v.add(*part.arguments, distance if part.function == "max" else v.negate(distance)))


def _zeros(value: Value, name: str) -> list[Expr]:
    """Return where what stands in bars is zero. Raises sets.Unordered if it is not linear in the variable."""
    zeros = [zero for part in v.children(value) for zero in _zeros(part, name)]
    if isinstance(value, v.Apply) and value.function in ("abs", "sgn") and name in v.names_in(value):
        line = find_line(value.arguments[0], name)
        if line is None:
            raise sets.Unordered
        zeros.append(v.negate(v.divide(line[1], line[0])))
    return zeros


def _values_at(pieces: list[Piece], name: str, place: float, point: Expr | None) -> Iterator[Value]:
    """Yield the value of each piece at a point, or its expression around a place; nothing where none is defined."""

    def with_sign(each: Expr) -> Expr:
        if not isinstance(each, v.Apply) or each.function not in ("abs", "sgn"):
            return each
        number = substitute(each.arguments[0], name, v.Num(Fraction(place)))
        if not isinstance(number, v.Num):
            return each
        sign = v.ONE if number.value > 0 else v.MINUS_ONE
        return v.multiply(sign, each.arguments[0]) if each.function == "abs" else sign

    for part, piece in pieces:
        low, high = sets.approximate(part.low), sets.approximate(part.high)
        if low < place < high or (place == low and part.low_closed) or (place == high and part.high_closed):
            if point is None:
                yield mapped(piece, with_sign)
            else:
                yield substitute(piece, name, point) if isinstance(piece, v.EXPRESSIONS) else piece
