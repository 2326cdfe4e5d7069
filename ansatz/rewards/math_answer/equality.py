"""Equality of expressions: exact arithmetic first, then the normal form, then algebra in a worker process."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Literal

from ansatz.rewards.math_answer import sets, views
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.canonical import TooLarge, canonical, difference
from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.relations import difference_of
from ansatz.rewards.math_answer.values import Expr, Value

Question = Literal["equal", "rounded", "proportional", "same_direction"]
Algebra = Callable[[Question, Expr, Expr], bool]
"""What algebra decides about two expressions: are they equal; is the second, a decimal, the first one rounded; is
their quotient a constant other than zero; is it a positive constant."""


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
        if self._options.same_form and views.form_of(gold) != views.form_of(answer):
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
        for exact, decimal in ((gold, answer), (answer, gold)):
            if isinstance(decimal, v.Num) and decimal.places is not None and not v.names_in(exact):
                number = views.as_number(exact)
                if number is not None:
                    return self._numbers(v.Num(number), decimal)
                allowed = decimal is gold or self._options.rounded_decimals  # 3.14159 is not pi
                long_enough = allowed and views.significant_digits(decimal) >= self._options.digits
                rounded = long_enough and self._algebra("rounded", exact, decimal)
                return rounded or (not (left.pure and right.pure) and self._algebra("equal", gold, answer))
        if left.pure and right.pure:
            return False
        return self._algebra("equal", gold, answer)

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
        return near and views.significant_digits(decimal) >= self._options.digits

    def rounds(self, exact: Value, decimal: Value) -> bool:
        """Return whether `exact \\approx decimal` holds to the digits that are written."""
        exact, decimal = views.parted(exact)[0], views.parted(decimal)[0]
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
        factor = views.factor_between(views.cleared(first.top), views.cleared(second.top))
        if factor is not None and (not directed or (factor > 0 and len(first.bottom) == len(second.bottom) == 1)):
            return True
        rational = views.has_rational_coefficients(first.top) and views.has_rational_coefficients(second.top)
        if first.pure and second.pure and rational:
            return False
        return self._algebra("same_direction" if directed else "proportional", left, right)
