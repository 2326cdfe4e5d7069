"""Evaluates expressions to many digits with mpmath, at points that are the same in every run.

Two functions that agree at several points to more digits than all their constants have are the same: the points are
rationals without meaning, so an agreement by chance has no measure. Real odd roots of negative numbers are real.
"""

# pyright: basic
# mpmath has no types

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import mpmath
from mpmath.libmp import NoConvergence

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.values import Expr

_MAX_LOG = 1e8  # largest logarithm of a number that is computed
_POINTS_NEEDED = 3
_TRIES = 9
_BASE_DIGITS = 50
_MAX_WORK = 60_000  # digits times nodes of the expressions, so that an evaluation takes well below a second
_ARGUMENT_DIGITS = 25  # of an argument of an unknown function, by which two arguments are told apart

Number = Any  # mpmath has no types
mp = mpmath.mp


class NoNumber(Exception):
    """The expression has no value that can be computed."""


def agree(gold: Expr, answer: Expr) -> bool:
    """Whether two expressions are equal wherever both are defined. Raises NoNumber if there are too few such points."""
    digits = _digits_for(gold, answer)
    agreed = 0
    for point in _points(gold, answer):
        try:
            if not _is_zero(lambda: _value(gold, point) - _value(answer, point), digits):  # noqa: B023
                return False
        except NoNumber:
            continue
        agreed += 1
        if agreed == _POINTS_NEEDED or not point:
            return True
    raise NoNumber("too few points")


def proportional(gold: Expr, answer: Expr, *, positive: bool) -> bool:
    """Whether answer / gold is the same number, other than zero, at all points."""
    digits = _digits_for(gold, answer)
    first: dict[str, Number] | None = None
    agreed = 0
    for point in _points(gold, answer):
        try:
            with mp.workdps(digits):
                here, there = _value(gold, point), _value(answer, point)
            if here == 0 or there == 0:
                return False
            if first is None:
                if positive and not mp.re(here / there) > 0:
                    return False
                first = point
                continue
            start = first

            def crossed() -> Number:
                left = _value(gold, start) * _value(answer, point)  # noqa: B023
                return left - _value(answer, start) * _value(gold, point)  # noqa: B023

            if not _is_zero(crossed, digits):
                return False
        except NoNumber:
            continue
        agreed += 1
        if agreed == _POINTS_NEEDED:
            return True
    raise NoNumber("too few points")


def is_rounding(exact: Expr, decimal: Expr) -> bool:
    """Whether a decimal is an exact constant, correctly rounded to the last digit of the decimal."""
    assert isinstance(decimal, v.Num)
    assert decimal.places is not None
    with mp.workdps(_digits_for(exact, decimal)):
        value = _value(exact, {})
        if abs(mp.im(value)) > abs(mp.re(value)) * mp.mpf(10) ** -40:
            return False
        error = abs(mp.re(value) - _number(decimal.value))
        return bool(error <= mp.mpf(10) ** -decimal.places / 2)


def _is_zero(difference: Callable[[], Number], digits: int) -> bool:
    """Whether a difference is zero: a rounding error shrinks as precision grows, a small true difference does not."""
    with mp.workdps(digits):
        rough = abs(difference())
        if rough == 0:
            return True
        if rough > mp.mpf(10) ** (-digits // 2):
            scale_free = rough > 1
            if not scale_free:
                return False
    with mp.workdps(2 * digits):
        return bool(abs(difference()) <= rough * mp.mpf(10) ** (-digits // 2))


def _digits_for(*expressions: Expr) -> int:
    """More digits than all constants have together. Raises NoNumber if the evaluation would take too long."""
    bits = sum(_bits(expression) for expression in expressions)
    digits = _BASE_DIGITS + bits * 302 // 1000
    if digits * sum(map(_size, expressions)) > _MAX_WORK:
        raise NoNumber("too long to evaluate")
    return digits


def _size(value: object) -> int:
    return 1 + sum(map(_size, v.children(value)))


def _bits(value: object) -> int:
    if isinstance(value, v.Num):
        return value.value.numerator.bit_length() + value.value.denominator.bit_length()
    return sum(_bits(child) for child in v.children(value))


def _points(*expressions: Expr) -> Iterator[dict[str, Number]]:
    """Points for all free names: first positive, later also small and negative."""
    names = sorted(frozenset().union(*(v.names_in(expression) for expression in expressions)))
    if not names:
        yield {}
        return
    for round_ in range(_TRIES):
        point: dict[str, Number] = {}
        for index, name in enumerate(names):
            seed = 7919 * (round_ + 1) + 104_729 * (index + 1)
            value = Fraction(seed * seed % 10_007 + 1_013, 3_001 + 97 * round_)
            point[name] = _number(-value if round_ % 3 == 2 else value / 5 if round_ % 3 == 1 else value)
        yield point


def _number(value: Fraction) -> Number:
    return mp.mpf(value.numerator) / value.denominator


def _value(value: Expr, point: dict[str, Number]) -> Number:
    try:
        result = _evaluate(value, point)
    except (ZeroDivisionError, ValueError, OverflowError, NoConvergence) as error:
        raise NoNumber(str(error)) from error
    if not mp.isfinite(result):
        raise NoNumber("not finite")
    return result


def _evaluate(value: Expr, point: dict[str, Number]) -> Number:
    if isinstance(value, v.Num):
        return _number(value.value)
    if isinstance(value, v.Name):
        constants = {"pi": mp.pi, "e": mp.e, "i": mp.j}
        if value.name in constants:
            return +constants[value.name]
        if value.name not in point:
            raise NoNumber(f"{value.name} has no number")
        return point[value.name]
    if isinstance(value, v.Sum):
        return mp.fsum(_evaluate(term, point) for term in value.terms)
    if isinstance(value, v.Product):
        return mp.fprod(_evaluate(factor, point) for factor in value.factors)
    if isinstance(value, v.Power):
        return _power(value, point)
    return _apply(value.function, [_evaluate(argument, point) for argument in value.arguments])


def _power(value: v.Power, point: dict[str, Number]) -> Number:
    base, exponent = _evaluate(value.base, point), _evaluate(value.exponent, point)
    if base == 0:
        if mp.re(exponent) <= 0:
            raise NoNumber("zero to a power that is not positive")
        return mp.mpf(0)
    if abs(exponent) * max(1, abs(mp.log(abs(base)))) > _MAX_LOG:
        raise NoNumber("too large")
    if isinstance(value.exponent, v.Num):
        ratio = value.exponent.value
        if ratio.denominator % 2 and ratio.denominator > 1 and mp.im(base) == 0 and mp.re(base) < 0:
            sign = -1 if ratio.numerator % 2 else 1
            return sign * mp.power(-base, exponent)
    return mp.power(base, exponent)


def _apply(name: str, arguments: list[Number]) -> Number:
    if any(abs(argument) > _MAX_LOG for argument in arguments) and name not in ("ln", "log", "abs", "arctan"):
        raise NoNumber("too large")
    first = arguments[0]
    if len(name.rstrip("'")) == 1:
        return _unknown_function(name, arguments)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](first)
    if any(mp.im(argument) != 0 for argument in arguments):
        raise NoNumber(f"{name} of a complex number")
    if name in ("max", "min"):
        return max(arguments) if name == "max" else min(arguments)
    if name in ("floor", "ceil", "sgn"):
        return {"floor": mp.floor, "ceil": mp.ceil, "sgn": mp.sign}[name](first)
    if name == "factorial":
        return mp.factorial(first)
    if name == "factorial2":
        return mp.fac2(first)
    if name == "binomial":
        return mp.binomial(*arguments)
    raise NoNumber(f"{name} has no number")


def _unknown_function(name: str, arguments: list[Number]) -> Number:
    """A number for f(x) that depends only on the name and the value of x, so f(x + 1) equals f(1 + x)."""
    key = repr((name, [mp.nstr(argument, _ARGUMENT_DIGITS) for argument in arguments]))
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return 1 + mp.mpf(int.from_bytes(digest)) / 2**64


_FUNCTIONS: dict[str, Callable[[Number], Number]] = {
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": mp.cot, "sec": mp.sec, "csc": mp.csc, "sinh": mp.sinh,
    "cosh": mp.cosh, "tanh": mp.tanh, "coth": mp.coth, "arcsin": mp.asin, "arccos": mp.acos, "arctan": mp.atan,
    "arccot": mp.acot, "ln": mp.log, "log": mp.log, "abs": abs, "Re": mp.re, "Im": mp.im, "arg": mp.arg,
}  # fmt: skip
