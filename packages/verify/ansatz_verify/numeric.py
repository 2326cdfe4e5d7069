"""Evaluates expressions to many digits with mpmath, at points that are the same in every run.

Two functions that agree at several points to more digits than all their constants have are the same: the points are
rationals without meaning, so an agreement by chance has no measure. Real odd roots of negative numbers are real.
"""

# pyright: basic
# mpmath has no types

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
from mpmath.libmp import NoConvergence

from ansatz_verify import values as v
from ansatz_verify.values import Expr
from ansatz_verify.words import KNOWN_FUNCTIONS, NOTATION

_MAX_LOG = 1e8  # largest logarithm of a number that is computed
_POINTS_NEEDED = 3
_TRIES = 16
_STEP_TRIES = 40  # for floors and the like, which are constant between steps
_SCALES = (Fraction(1), Fraction(1, 5), Fraction(3))
_MAX_TURNS = 4  # names that are negative one after the other
_BASE_DIGITS = 50
_PARTIAL = 20  # terms of an infinite sum
_FIRST_INTEGERS = 8  # values of an integer that are all tried
_MAX_WORK = 60_000  # digits times nodes of the expressions, so that an evaluation takes well below a second
_ARGUMENT_DIGITS = 25  # of an argument of an unknown function, by which two arguments are told apart

Number = Any  # mpmath has no types
mp = mpmath.mp


class NoNumber(Exception):
    """The expression has no value that can be computed."""


@dataclass(frozen=True, slots=True)
class Point:
    """A number for each name. real: a logarithm or even root of a negative number with names has no value."""

    numbers: dict[str, Number]
    real: bool = False
    needed: bool = False


_CONSTANT_POINT = Point({})


def agree(gold: Expr, answer: Expr) -> bool:
    """Return whether two expressions are equal wherever both are defined.

    Raises NoNumber if there are too few such points.
    """
    if v.holds(gold, v.INFINITY) != v.holds(answer, v.INFINITY):
        raise NoNumber("an infinite sum on one side only")
    digits = _digits_for(gold, answer)

    def same_at(point: Point) -> bool:
        return _is_zero(lambda: _value(gold, point) - _value(answer, point), digits)

    return _holds(same_at, gold, answer)


def proportional(gold: Expr, answer: Expr, *, positive: bool) -> bool:
    """Return whether answer / gold is the same number, other than zero, at all points."""
    digits = _digits_for(gold, answer)
    first: list[Point] = []

    def same_at(point: Point) -> bool:
        with mp.workdps(digits):
            here, there = _value(gold, point), _value(answer, point)
        if here == 0 or there == 0:
            return False
        if not first or first[0].real != point.real:
            first[:] = [point]
            return not positive or bool(mp.re(here / there) > 0)
        start = first[0]
        return _is_zero(
            lambda: _value(gold, start) * _value(answer, point) - _value(answer, start) * _value(gold, point), digits
        )

    return _holds(same_at, gold, answer)


def _holds(same_at: Callable[[Point], bool], gold: Expr, answer: Expr) -> bool:
    """Return whether a test holds at all points where it has a value: at real ones, or else at any."""
    for real in (True, False) if v.applies(gold, {"abs"}) == v.applies(answer, {"abs"}) else (False,):
        agreed = 0
        for point in _points(gold, answer, real=real):
            try:
                if not same_at(point):
                    return False
            except NoNumber:
                continue
            agreed += 1
            if not point.numbers or (agreed >= _POINTS_NEEDED and not point.needed):
                return True
        if agreed >= _POINTS_NEEDED:
            return True
    raise NoNumber("too few points")


def is_rounding(exact: Expr, decimal: Expr) -> bool:
    """Return whether a decimal is an exact constant, correctly rounded to the last digit of the decimal."""
    assert isinstance(decimal, v.Num)
    assert decimal.places is not None
    with mp.workdps(_digits_for(exact, decimal)):
        value = _value(exact, _CONSTANT_POINT)
        if abs(mp.im(value)) > abs(mp.re(value)) * mp.mpf(10) ** -40:
            return False
        error = abs(mp.re(value) - _number(decimal.value))
        return bool(error <= mp.mpf(10) ** -decimal.places / 2)


def _is_zero(difference: Callable[[], Number], digits: int) -> bool:
    """Return whether a difference is zero: a rounding error shrinks as precision grows, a small true difference
    does not.
    """
    with mp.workdps(digits):
        rough = abs(difference())
        if rough == 0:
            return True
        if mp.mpf(10) ** (-digits // 2) < rough <= 1:
            return False
    with mp.workdps(2 * digits):
        return bool(abs(difference()) <= rough * mp.mpf(10) ** (-digits // 2))


def _digits_for(*expressions: Expr) -> int:
    """Return more digits than all constants have together. Raises NoNumber if the evaluation would take too long."""
    bits = sum(_bits(expression) for expression in expressions)
    digits = _BASE_DIGITS + bits * 302 // 1000
    if digits * sum(map(_count_work, expressions)) > _MAX_WORK:
        raise NoNumber("too long to evaluate")
    return digits


def _count_work(value: object) -> int:
    """Count the nodes of an expression as often as they are evaluated."""
    summed = isinstance(value, v.Apply) and value.function in ("sum", "prod")
    return (_PARTIAL if summed else 1) * (1 + sum(map(_count_work, v.children(value))))


def _bits(value: object) -> int:
    if isinstance(value, v.Num):
        return value.value.numerator.bit_length() + value.value.denominator.bit_length()
    return sum(_bits(child) for child in v.children(value))


def _points(*expressions: Expr, real: bool) -> Iterator[Point]:
    """Yield points for all free names: positive ones, then all names negative, then one after the other.

    A name under a root or a logarithm stays positive at real points, so that `ln x^2` is `2 ln x`; `sqrt(x^2)` does not
    make x positive. needed: the test has to pass there if both sides have a value.
    """
    names = sorted(frozenset().union(*(v.names_in(expression) for expression in expressions)))
    if not names:
        yield _CONSTANT_POINT
        return
    stepped = any(v.applies(expression, {"floor", "ceil", "sgn"}) for expression in expressions)
    integers = frozenset().union(*map(_integers, expressions))
    positive = frozenset().union(*map(_positive_names, expressions)) if real else frozenset[str]()
    for round_ in range(_STEP_TRIES if stepped else _TRIES):
        turn = round_ - 4
        numbers: dict[str, Number] = {}
        for index, name in enumerate(names):
            seed = 7919 * (round_ + 1) + 104_729 * (index + 1)
            value = Fraction(seed * seed % 10_007 + 1_013, 3_001 + 97 * round_)
            value *= round_ + 1 if stepped else _SCALES[round_ % 3]
            negative = round_ in (2, 3) or turn == index
            value = Fraction(round_ + 1 + 2 * index) if name in integers else value
            numbers[name] = _number(-value if negative and name not in positive | integers else value)
        forced = stepped or (integers and round_ < _FIRST_INTEGERS)
        yield Point(numbers, real, needed=bool(forced) or turn < min(len(names), _MAX_TURNS))


def _positive_names(value: Expr) -> frozenset[str]:
    """Return the names that are positive where an expression is real, as far as monomials under roots and
    logarithms tell.
    """
    names: frozenset[str] = frozenset().union(*map(_positive_names, v.children(value)))
    if isinstance(value, v.Apply) and value.function in ("ln", "log"):
        return names | (_odd_names(value.arguments[0]) or frozenset())
    if isinstance(value, v.Power) and not (isinstance(value.exponent, v.Num) and value.exponent.value.denominator % 2):
        return names | (_odd_names(value.base) or frozenset())
    return names


def _odd_names(value: Expr) -> frozenset[str] | None:
    """Return the names with an odd power in a monomial with a positive coefficient; None for other expressions."""
    if isinstance(value, v.Num):
        return frozenset() if value.value > 0 else None
    if isinstance(value, v.Name):
        return frozenset() if value.name in ("pi", "e") else None if value.name in v.CONSTANTS else v.names_in(value)
    if isinstance(value, v.Product):
        names: frozenset[str] = frozenset()
        for factor in value.factors:
            of_factor = _odd_names(factor)
            if of_factor is None:
                return None
            names = names ^ of_factor
        return names
    if isinstance(value, v.Power) and isinstance(value.exponent, v.Num) and value.exponent.value.denominator == 1:
        return _odd_names(value.base) if value.exponent.value % 2 else frozenset()
    return None


def _number(value: Fraction) -> Number:
    return mp.mpf(value.numerator) / value.denominator


def _value(value: Expr, point: Point) -> Number:
    try:
        result = _evaluate(value, point)
    except (ZeroDivisionError, ValueError, OverflowError, NoConvergence) as error:
        raise NoNumber(str(error)) from error
    if not mp.isfinite(result):
        raise NoNumber("not finite")
    return result


def _evaluate(value: Expr, point: Point) -> Number:
    if isinstance(value, v.Num):
        return _number(value.value)
    if isinstance(value, v.Name):
        constants = {"pi": mp.pi, "e": mp.e, "i": mp.j}
        if value.name in constants:
            return +constants[value.name]
        if value.name not in point.numbers:
            raise NoNumber(f"{value.name} has no number")
        return point.numbers[value.name]
    if isinstance(value, v.Sum):
        return mp.fsum(_evaluate(term, point) for term in value.terms)
    if isinstance(value, v.Product):
        return mp.fprod(_evaluate(factor, point) for factor in value.factors)
    if isinstance(value, v.Power):
        return _power(value, point)
    return _add_up(value, point) if value.function in ("sum", "prod") else _applied(value, point)


def _applied(value: v.Apply, point: Point) -> Number:
    arguments = [_evaluate(argument, point) for argument in value.arguments]
    if value.function in v.SPECIAL_FUNCTIONS and len(arguments) == 1:
        return {"Gamma": mp.gamma, "zeta": mp.zeta, "Phi": mp.ncdf}[value.function](arguments[0])
    if value.function not in KNOWN_FUNCTIONS:
        return _unknown_function(value.function, arguments, point)
    if point.real and value.function in ("ln", "log") and _is_negative(arguments[0]) and v.names_in(value.arguments[0]):
        raise NoNumber("the logarithm of a negative number")
    return _apply(value.function, arguments)


def _add_up(value: v.Apply, point: Point) -> Number:
    """Return a sum or product over integers; of an infinite one, its first terms."""
    body, index, first, last = value.arguments
    start = _evaluate(first, point)
    end = start + _PARTIAL - 1 if last == v.INFINITY else _evaluate(last, point)
    if not isinstance(index, v.Name) or not mp.isint(start) or not mp.isint(end) or end - start > _PARTIAL:
        raise NoNumber("not a sum over a few integers")
    places = (
        dataclasses.replace(point, numbers=point.numbers | {index.name: start + k}) for k in range(int(end - start) + 1)
    )
    return (mp.fsum if value.function == "sum" else mp.fprod)(_evaluate(body, place) for place in places)


def _integers(value: Expr) -> frozenset[str]:
    """Return the names that stand for integers: bounds of sums, double factorials, exponents of negative numbers."""
    if isinstance(value, v.Apply):
        counted = value.arguments[{"sum": 2, "prod": 2, "factorial2": 0}.get(value.function, len(value.arguments)) :]
    elif isinstance(value, v.Power):
        counted = (value.exponent,) if isinstance(value.base, v.Num) and value.base.value < 0 else ()
    else:
        counted = ()
    return frozenset().union(*map(v.names_in, counted), *map(_integers, v.children(value)))


def _power(value: v.Power, point: Point) -> Number:
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
    if point.real and _is_negative(base) and not mp.isint(exponent) and v.names_in(value.base):
        raise NoNumber("an even root of a negative number")
    return mp.power(base, exponent)


def _is_negative(number: Number) -> bool:
    return bool(mp.im(number) == 0 and mp.re(number) < 0)


def _apply(name: str, arguments: list[Number]) -> Number:
    if any(abs(argument) > _MAX_LOG for argument in arguments) and name not in ("ln", "log", "abs", "arctan"):
        raise NoNumber("too large")
    first = arguments[0]
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](first)
    if any(mp.im(argument) != 0 for argument in arguments):
        raise NoNumber(f"{name} of a complex number")
    if name in ("max", "min"):
        return max(arguments) if name == "max" else min(arguments)
    if name in _REAL_FUNCTIONS:
        return _REAL_FUNCTIONS[name](first)
    if name == "binomial":
        return mp.binomial(*arguments)
    raise NoNumber(f"{name} has no number")


def _unknown_function(name: str, arguments: list[Number], point: Point) -> Number:
    """Return a number for f(x) that depends only on f and the value of x, so f(x + 1) equals f(1 + x).

    f differs by point.
    """
    key = repr((name, [mp.nstr(number, _ARGUMENT_DIGITS) for number in (point.numbers[name], *arguments)]))
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return 1 + mp.mpf(int.from_bytes(digest)) / 2**64


_FUNCTIONS: dict[str, Callable[[Number], Number]] = {
    name: getattr(mp, NOTATION["in_sympy"].get(name, name)) for name in NOTATION["of_a_number"].split()
} | {"ln": mp.log, "log": mp.log, "abs": abs, "Re": mp.re, "Im": mp.im, "arg": mp.arg}
_REAL_FUNCTIONS = {"floor": mp.floor, "ceil": mp.ceil, "sgn": mp.sign, "factorial": mp.factorial, "factorial2": mp.fac2}
