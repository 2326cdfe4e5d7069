"""Small views of a value that comparisons need: its number, its outermost form, its unit, its items."""

from __future__ import annotations

from fractions import Fraction

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.canonical import Polynomial, canonical, times
from ansatz.rewards.math_answer.parse import fold
from ansatz.rewards.math_answer.units import Unit, conversion
from ansatz.rewards.math_answer.values import Expr, Value
from ansatz.rewards.math_answer.words import is_single_letter_unit, unit_name


def as_number(value: Expr) -> Fraction | None:
    """Return the rational number that an expression equals; None for any other expression."""
    form = canonical(value)
    if set(form.top) | set(form.bottom) <= {()}:
        return form.top.get((), Fraction(0)) / form.bottom[()]
    return None


def significant_digits(number: v.Num) -> int:
    """Return the number of significant digits of a decimal."""
    assert number.places is not None
    return len(str(abs(int(number.value * Fraction(10) ** number.places))))


def form_of(value: Expr) -> tuple[str, int]:
    """Return the outermost operation, and how many sums it multiplies."""
    if isinstance(value, v.Product):
        return "product", sum(isinstance(_base(factor), v.Sum) for factor in value.factors)
    if isinstance(value, v.Power) and isinstance(value.base, v.Sum) and value.exponent != v.MINUS_ONE:
        return "product", 1
    return ("sum", 1) if isinstance(value, v.Sum) else ("product", 0)


def _base(factor: Expr) -> Expr:
    return factor.base if isinstance(factor, v.Power) else factor


def words_of(value: Value) -> str:
    if isinstance(value, v.Text):
        return value.words.lower()
    return fold(value.name) if isinstance(value, v.Name) else ""


def parted(value: Value) -> tuple[Value, Unit]:
    return (value.amount, value.unit) if isinstance(value, v.Quantity) else (value, ())


def with_letter_unit(value: Value, unit: Unit) -> tuple[Value, Unit]:
    """Read `5 m` as 5 metres, and `3 N m` as 3 newton metres, if the other side has such a unit. Else it stays."""
    if not isinstance(value, v.Product):
        return value, ()
    letters: dict[str, int] = {}
    rest: list[Expr] = []
    prefix = ""
    for factor in value.factors:
        if factor == v.Name("mu"):
            prefix = "u"
            continue
        letter = _letter_power(factor, prefix)
        prefix = ""
        if letter:
            letters[letter[0]] = letters.get(letter[0], 0) + letter[1]
        else:
            rest.append(factor)
    written = tuple(sorted(letters.items()))
    same = rest and not prefix and letters and conversion(written)[1] == conversion(unit)[1]
    return (v.multiply(*rest), written) if same else (value, ())


def _letter_power(factor: Expr, prefix: str) -> tuple[str, int] | None:
    """Return the unit of a factor that is a letter, and its power."""
    base, power = (factor.base, factor.exponent) if isinstance(factor, v.Power) else (factor, v.ONE)
    if not isinstance(base, v.Name) or not isinstance(power, v.Num) or power.value.denominator != 1:
        return None
    if base.name == "Omega":
        return "ohm", int(power.value)
    unit = unit_name(prefix + base.name) if prefix or is_single_letter_unit(base.name) else None
    return (unit, int(power.value)) if unit else None


def conditions_of(value: v.Cases) -> list[tuple[Value, Value]]:
    """Return (value, condition) of each piece, with the other conditions left out of all numbers for "otherwise"."""
    stated = [condition for _, condition in value.pieces if condition is not None]
    rest: Value = v.REALS
    for condition in stated:
        rest = v.Combination("difference", (rest, condition))
    return [(part, rest if condition is None else condition) for part, condition in value.pieces]


_UNIT_VECTORS = {
    f"{mark}{letter}": place for mark in ("", "hat ", "vec ", "bar ") for place, letter in enumerate("ijk")
}


def in_components(gold: Value, answer: Value) -> tuple[Value, Value] | None:
    """Return both sides as points, if one of them is a sum of unit vectors such as `3i + 4j` and the other is a
    vector.
    """
    if isinstance(gold, v.Num) or isinstance(answer, v.Num):
        return None
    sides = [_components(side) if isinstance(side, v.EXPRESSIONS) else None for side in (gold, answer)]
    if sides == [None, None]:
        return None
    points: list[Value] = []
    for side, components in zip((gold, answer), sides, strict=True):
        if components is not None:
            points.append(v.Bracket("(", components, ")"))
        elif isinstance(side, v.Bracket) and len(side.items) == 2 and side.left == "(":
            points.append(v.Bracket(side.left, (*side.items, v.ZERO), side.right))
        elif isinstance(side, v.Matrix) and len(side.rows) == 2 and len(side.rows[0]) == 1:
            points.append(v.Matrix((*side.rows, (v.ZERO,))))
        elif isinstance(side, v.Bracket | v.Matrix):
            points.append(side)
        else:
            return None
    return points[0], points[1]


def _components(value: Expr) -> tuple[Expr, ...] | None:
    """Return the three components of a sum of unit vectors; None for other expressions, and for complex numbers."""
    if _UNIT_VECTORS.keys().isdisjoint(v.names_in(value)):  # i alone is the imaginary unit
        return None
    terms = [part for term in (value.terms if isinstance(value, v.Sum) else (value,)) for part in _distributed(term)]
    sums: list[list[Expr]] = [[], [], []]
    for term in terms:
        factors = term.factors if isinstance(term, v.Product) else (term,)
        places = [_UNIT_VECTORS[f.name] for f in factors if isinstance(f, v.Name) and f.name in _UNIT_VECTORS]
        rest = [f for f in factors if not (isinstance(f, v.Name) and f.name in _UNIT_VECTORS)]
        if len(places) != 1 or any(_UNIT_VECTORS.keys() & {"i", *v.names_in(f)} & v.names_in(f) for f in rest):
            return None
        sums[places[0]].append(v.multiply(v.ONE, *rest))
    return tuple(v.add(v.ZERO, *terms) for terms in sums)


def _distributed(term: Expr) -> list[Expr]:
    """Return the terms of a number times one sum."""
    factors = term.factors if isinstance(term, v.Product) else (term,)
    inner = [factor for factor in factors if isinstance(factor, v.Sum)]
    if len(inner) != 1:
        return [term]
    rest = [factor for factor in factors if factor is not inner[0]]
    return [v.multiply(*rest, part) for part in inner[0].terms]


def items_of(value: Value) -> tuple[Value, ...] | None:
    return value.items if isinstance(value, v.Listing | v.Collection) else None


def flattened(value: Value) -> list[Value]:
    if isinstance(value, v.Combination) and value.operator == "union":
        return [piece for part in value.parts for piece in flattened(part)]
    return [value]


def factor_between(left: Polynomial, right: Polynomial) -> Fraction | None:
    """Return the number other than zero that turns one polynomial into the other; None if there is none."""
    if left.keys() != right.keys() or not left:
        return None
    monomial = next(iter(left))
    factor = right[monomial] / left[monomial]
    return factor if all(right[m] == c * factor for m, c in left.items()) else None


def has_rational_coefficients(polynomial: Polynomial) -> bool:
    """Return whether all coefficients are rational numbers, without roots or pi."""
    return all(atom[0] == "v" and atom[1] not in v.CONSTANTS for monomial in polynomial for atom, _ in monomial)


def cleared(polynomial: Polynomial) -> Polynomial:
    """Multiply by powers of its variables until no exponent is negative: y - 6/x becomes xy - 6."""
    lowest: dict[tuple[str, ...], Fraction] = {}
    for monomial in polynomial:
        for atom, exponent in monomial:
            lowest[atom] = min(exponent, lowest.get(atom, Fraction(0)))
    missing = {tuple(sorted((atom, -exponent) for atom, exponent in lowest.items() if exponent < 0)): Fraction(1)}
    return times(polynomial, missing)


def same_time(gold: v.Clock, answer: v.Clock) -> bool:
    """Compare times: `4:30` is `4:30 p.m.` and `4:30 a.m.`, `16:30` is only `4:30 p.m.`"""
    if (gold.minute, gold.second) != (answer.minute, answer.second):
        return False
    hours = _hour_of_day(gold), _hour_of_day(answer)
    if None not in hours or hours == (None, None):
        return gold.hour == answer.hour if hours[0] is None else hours[0] == hours[1]
    return (gold.half or answer.half) != "" and gold.hour == answer.hour


def _hour_of_day(time: v.Clock) -> int | None:
    """Return the hour from 0 to 24; None for a time of the 12-hour clock without a.m. or p.m."""
    if time.half:
        return time.hour % 12 + (12 if time.half == "pm" else 0)
    return time.hour if time.hour > 12 or time.hour == 0 else None
