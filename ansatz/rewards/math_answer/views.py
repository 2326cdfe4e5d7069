"""Small views of a value that comparisons need: its number, its outermost form, its unit, its items."""

from __future__ import annotations

from fractions import Fraction

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.canonical import Polynomial, canonical, times
from ansatz.rewards.math_answer.parse import fold
from ansatz.rewards.math_answer.units import Unit
from ansatz.rewards.math_answer.values import Expr, Value
from ansatz.rewards.math_answer.words import is_single_letter_unit, unit_name


def as_number(value: Expr) -> Fraction | None:
    """The rational number that an expression equals; None for any other expression."""
    form = canonical(value)
    if set(form.top) | set(form.bottom) <= {()}:
        return form.top.get((), Fraction(0)) / form.bottom[()]
    return None


def significant_digits(number: v.Num) -> int:
    """The number of significant digits of a decimal."""
    assert number.places is not None
    return len(str(abs(int(number.value * Fraction(10) ** number.places))))


def form_of(value: Expr) -> tuple[str, int]:
    """The outermost operation, and how many sums it multiplies."""
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
    """`5 m` as 5 metres, if the other side has that unit. Otherwise the letter is a variable."""
    if isinstance(value, v.Product) and isinstance(value.factors[-1], v.Name):
        letter = value.factors[-1].name
        if is_single_letter_unit(letter) and ((unit_name(letter), 1),) == unit:
            return v.multiply(*value.factors[:-1]), unit
    return value, ()


def items_of(value: Value) -> tuple[Value, ...] | None:
    return value.items if isinstance(value, v.Listing | v.Collection) else None


def flattened(value: Value) -> list[Value]:
    if isinstance(value, v.Combination) and value.operator == "union":
        return [piece for part in value.parts for piece in flattened(part)]
    return [value]


def factor_between(left: Polynomial, right: Polynomial) -> Fraction | None:
    """The number other than zero that turns one polynomial into the other; None if there is none."""
    if left.keys() != right.keys() or not left:
        return None
    monomial = next(iter(left))
    factor = right[monomial] / left[monomial]
    return factor if all(right[m] == c * factor for m, c in left.items()) else None


def has_rational_coefficients(polynomial: Polynomial) -> bool:
    """Whether all coefficients are rational numbers, without roots or pi."""
    return all(atom[0] == "v" and atom[1] not in v.CONSTANTS for monomial in polynomial for atom, _ in monomial)


def cleared(polynomial: Polynomial) -> Polynomial:
    """Multiplies by powers of its variables until no exponent is negative: y - 6/x becomes xy - 6."""
    lowest: dict[tuple[str, ...], Fraction] = {}
    for monomial in polynomial:
        for atom, exponent in monomial:
            lowest[atom] = min(exponent, lowest.get(atom, Fraction(0)))
    missing = {tuple(sorted((atom, -exponent) for atom, exponent in lowest.items() if exponent < 0)): Fraction(1)}
    return times(polynomial, missing)
