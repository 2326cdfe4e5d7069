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
from ansatz.rewards.math_answer.relations import assigned, difference_of, find_line
from ansatz.rewards.math_answer.values import Expr, Value
from ansatz.rewards.math_answer.views import as_number

Vector = tuple[Expr, ...]
_PHASES = frozenset({"phi", "delta", "alpha", "theta"})
_MAX_VECTORS, _MAX_ENTRIES = 3, 6


def is_same_space(gold: Value, answer: Value, equal: Callable[[Expr, Expr], bool]) -> bool:
    """Return whether two general solutions, or two lines or planes, are equal as sets."""
    expected, stated = _read_space(_by_points(gold), of_gold=True), _read_space(_by_points(answer))
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
    side = _without_phase(side, of_gold=of_gold)
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
        arbitrary = constants <= {"lambda", "mu", "nu"} or not (label is None or isinstance(label, v.Apply))
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


def with_parameter(value: Value) -> Value:
    """Return the points of a line in symmetric equations, `(x - 1)/2 = y/3 = z` or `x = 2y, z = 4`; else the value.

    Every side is linear in its own coordinate, so it gives that coordinate by the common value t.
    """
    items = value.items if isinstance(value, v.Listing) else (value,)
    if v.names_in(value) ^ {*"xyz"} or not all(isinstance(item, v.Relation) for item in items):
        return value
    entries: dict[str, Expr] = {}
    for item in cast("tuple[v.Relation, ...]", items):
        name, constant = assigned(item) or (None, None)
        if set(item.operators) != {"="} or (isinstance(value, v.Listing) and value.choice):
            return value
        if isinstance(name, v.Name) and isinstance(constant, v.EXPRESSIONS) and not v.names_in(constant):
            entries[name.name] = constant
            continue
        for side in item.sides:
            name, *others = sorted(v.names_in(side)) or [""]
            line = None if others or not isinstance(side, v.EXPRESSIONS) else find_line(side, name)
            if line is None or name in entries:
                return value
            entries[name] = v.divide(v.add(v.Name("t"), v.negate(line[1])), line[0])
    if len(entries) < 3 or len(items) == 3:
        return value
    points = (v.Bracket("(", tuple(map(v.Name, "xyz")), ")"), v.Bracket("(", tuple(entries[x] for x in "xyz"), ")"))
    return v.Relation(points, ("=",))


def _by_points(value: Value) -> Value:
    """Return the points of a line `2x + y = 3` of the plane, or of a plane, given by its equation; else the value."""
    sides = difference_of(value) if isinstance(value, v.Relation) and value.operators == ("=",) else None
    names = sorted(v.names_in(value))
    line = find_line(sides[0], names[-1]) if sides and names in ([*"xy"], [*"xyz"]) else None
    if line is None or as_number(line[0]) is None:
        return value
    free = {name: v.Name(letter) for name, letter in zip(names[:-1], ("lambda", "mu"), strict=False)}
    last = parameters.renamed(v.negate(v.divide(line[1], line[0])), dict(free))
    points = v.Bracket("(", (*free.values(), last), ")")
    return v.Relation((v.Bracket("(", tuple(map(v.Name, names)), ")"), points), ("=",))


def _without_phase(side: Value, *, of_gold: bool) -> Value:
    """Return `A sin(2x + phi)` as `C_1 sin 2x + C_2 cos 2x`, if nothing else is given."""
    product = side.factors if isinstance(side, v.Product) else ()
    waves = [part for part in product if isinstance(part, v.Apply) and part.function in ("sin", "cos")]
    inner = waves[0].arguments[0] if len(waves) == 1 else None
    phases = v.names_in(inner) & _PHASES if isinstance(inner, v.Sum) else ()
    amplitudes = [part for part in product if part not in waves]
    if len(phases) != 1 or len(amplitudes) != 1 or not parameters.constants_in(amplitudes[0]):
        return side
    line = find_line(cast("Expr", inner), *phases)
    if line is None or as_number(line[0]) not in (1, -1) or (of_gold and v.names_in(line[1]) - parameters.VARIABLES):
        return side
    turns = (v.multiply(v.Name(f"C_{name}"), v.Apply(name, line[1:])) for name in ("sin", "cos"))
    return v.add(*turns)


def _is_transcendental(value: Value) -> bool:
    varies = isinstance(value, v.Power) and v.names_in(value.exponent) & parameters.VARIABLES
    return bool(varies) or isinstance(value, v.Apply) or any(map(_is_transcendental, v.children(value)))


def _is_linear(value: Value, names: frozenset[str]) -> bool:
    held = [part for part in v.children(value) if v.names_in(part) & names]
    known = isinstance(value, v.Sum | v.Name) or (isinstance(value, v.Product) and len(held) == 1)
    return not v.names_in(value) & names or (known and all(_is_linear(part, names) for part in held))
