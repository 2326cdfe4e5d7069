"""Equality of expressions: exact arithmetic first, then the normal form, then algebra in a worker process."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Literal

from ansatz_verify import sets
from ansatz_verify import values as v
from ansatz_verify.canonical import Polynomial, TooLarge, canonical, difference, times
from ansatz_verify.options import Options
from ansatz_verify.relations import difference_of
from ansatz_verify.units import parted
from ansatz_verify.values import Expr, Value

Question = Literal["equal", "rounded", "proportional", "same_direction"]
Algebra = Callable[[Question, Expr, Expr], bool]
"""A function that decides a question about two expressions by algebra: are they equal; is the second, a decimal, the
first one rounded; is their quotient a constant other than zero; is it a positive constant."""


class Undecided(Exception):
    """The pair cannot be decided without algebra."""


class Equality:
    """Equality under some options.

    algebra: decides questions that exact arithmetic cannot. It raises Undecided where no worker is at hand.
    """

    def __init__(self, options: Options, algebra: Algebra) -> None:
        self._options = options
        self._algebra = algebra

    def equal(self, gold: Expr, answer: Expr) -> bool:
        """Return whether two expressions are equal as functions of their variables.

        A decimal equals an exact rational number, or a gold decimal an exact constant, as its correct rounding.
        """
        if isinstance(gold, v.Num) and isinstance(answer, v.Num):
            return self._numbers(gold, answer)
        if self._options.same_form and _form_of(gold) != _form_of(answer):
            return False
        if gold == answer:
            return True
        if v.INFINITY in (gold, answer) or v.negate(v.INFINITY) in (gold, answer):
            return False
        try:
            left, right = canonical(gold), canonical(answer)
            rest = difference(left, right)
        except TooLarge:
            return self._algebra("equal", gold, answer)
        if not rest:
            return True
        pure = left.pure and right.pure
        for exact, decimal in ((gold, answer), (answer, gold)):
            if isinstance(decimal, v.Num) and decimal.places is not None and not v.names_in(exact):
                allowed = decimal is gold or self._options.rounded_decimals  # 3.14159 is not pi
                return self._decimal(exact, decimal, allowed=allowed) or (
                    not pure and _as_number(exact) is None and self._algebra("equal", gold, answer)
                )
        return not pure and self._algebra("equal", gold, answer)

    def _decimal(self, exact: Expr, decimal: v.Num, *, allowed: bool) -> bool:
        """Return whether a decimal stands for a constant by rounding."""
        number = _as_number(exact)
        if number is not None:
            return self._numbers(v.Num(number), decimal)
        long_enough = allowed and _significant_digits(decimal) >= self._options.digits
        return long_enough and self._algebra("rounded", exact, decimal)

    def _numbers(self, gold: v.Num, answer: v.Num) -> bool:
        if gold.value == answer.value:
            return True
        if gold.places is None and answer.places is None:
            return False
        if gold.places is not None and answer.places is not None:
            if not self._options.rounded_decimals:
                return False
            exact, decimal = (gold, answer) if gold.places > answer.places else (answer, gold)
        else:
            exact, decimal = (gold, answer) if gold.places is None else (answer, gold)
            if exact.value.denominator == 1:
                return False  # an integer has no rounding
        assert decimal.places is not None
        near = abs(exact.value - decimal.value) <= Fraction(1, 2) * Fraction(10) ** -decimal.places
        return near and _significant_digits(decimal) >= self._options.digits

    def rounds(self, exact: Value, decimal: Value) -> bool:
        """Return whether `exact \\approx decimal` holds to the digits that are written."""
        exact, decimal = parted(exact)[0], parted(decimal)[0]
        if not isinstance(exact, v.EXPRESSIONS) or not isinstance(decimal, v.Num):
            return False
        return abs(sets.approximate(exact) - float(decimal.value)) <= 0.51 * 10.0 ** -(decimal.places or 0)

    def same_equation(self, gold: v.Relation, answer: v.Relation) -> bool:
        """Return whether two equations or inequalities agree up to a factor, which is positive for inequalities."""
        if len(gold.sides) != 2 or len(answer.sides) != 2:
            return False
        gold_side, answer_side = difference_of(gold), difference_of(answer)
        if gold_side is None or answer_side is None or gold_side[1] != answer_side[1]:
            return False
        operator, left, right = gold_side[1], gold_side[0], answer_side[0]
        directed = operator not in ("=", "!=")
        try:
            first, second = canonical(left), canonical(right)
        except TooLarge:
            return self._algebra("same_direction" if directed else "proportional", left, right)
        factor = _factor_between(_cleared(first.top), _cleared(second.top))
        if factor is not None and (not directed or (factor > 0 and len(first.bottom) == len(second.bottom) == 1)):
            return True
        rational = _has_rational_coefficients(first.top) and _has_rational_coefficients(second.top)
        if first.pure and second.pure and rational:
            return False
        return self._algebra("same_direction" if directed else "proportional", left, right)


def _as_number(value: Expr) -> Fraction | None:
    """Return the rational number that an expression equals; None for any other expression."""
    form = canonical(value)
    if set(form.top) | set(form.bottom) <= {()}:
        return form.top.get((), Fraction(0)) / form.bottom[()]
    return None


def _significant_digits(number: v.Num) -> int:
    """Return the number of significant digits of a decimal."""
    assert number.places is not None
    return len(str(abs(int(number.value * Fraction(10) ** number.places))))


def _form_of(value: Expr) -> tuple[str, int]:
    """Return the outermost operation, and how many sums it multiplies."""
    if isinstance(value, v.Product):
        return "product", sum(isinstance(_base(factor), v.Sum) for factor in value.factors)
    if isinstance(value, v.Power) and isinstance(value.base, v.Sum) and value.exponent != v.MINUS_ONE:
        return "product", 1
    return ("sum", 1) if isinstance(value, v.Sum) else ("product", 0)


def _base(factor: Expr) -> Expr:
    return factor.base if isinstance(factor, v.Power) else factor


def _factor_between(left: Polynomial, right: Polynomial) -> Fraction | None:
    """Return the number other than zero that turns one polynomial into the other; None if there is none."""
    if left.keys() != right.keys() or not left:
        return None
    monomial = next(iter(left))
    factor = right[monomial] / left[monomial]
    return factor if all(right[m] == c * factor for m, c in left.items()) else None


def _has_rational_coefficients(polynomial: Polynomial) -> bool:
    """Return whether all coefficients are rational numbers, without roots or pi."""
    return all(atom[0] == "v" and atom[1] not in v.CONSTANTS for monomial in polynomial for atom, _ in monomial)


def _cleared(polynomial: Polynomial) -> Polynomial:
    """Multiply by powers of its variables until no exponent is negative: y - 6/x becomes xy - 6."""
    lowest: dict[tuple[str, ...], Fraction] = {}
    for monomial in polynomial:
        for atom, exponent in monomial:
            lowest[atom] = min(exponent, lowest.get(atom, Fraction(0)))
    missing = {tuple(sorted((atom, -exponent) for atom, exponent in lowest.items() if exponent < 0)): Fraction(1)}
    return times(polynomial, missing)
