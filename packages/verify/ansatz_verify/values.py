"""The values of answers: small trees of frozen records.

Expressions (Num, Name, Sum, Product, Power, Apply) are built by `add`, `multiply`, `power`, which fold rational numbers
exactly and within limits. An expression without a value (0/0, infinity - infinity) raises Undefined; one that is too
large to fold stays a tree. The other records are answers that are not one expression: lists, intervals, texts, ...
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

from ansatz_verify.words import KNOWN_FUNCTIONS

MAX_BITS = 40_000  # of an integer that is computed; 2^{4181} is an answer, 9^{9^9} is not


class UnreadableAnswer(Exception):
    """The text is not an answer in a supported form."""


class Undefined(UnreadableAnswer):
    """The text can be parsed but has no value: 0/0, nan, infinity - infinity."""


@dataclass(frozen=True, slots=True)
class Num:
    """A rational number. places: the digits after the point if it was written as a decimal; None if it is exact.

    3.83e35 has places -33: a decimal stands for a value rounded to its last digit.
    """

    value: Fraction
    places: int | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or a constant; the constants are pi, e, i, inf."""

    name: str


@dataclass(frozen=True, slots=True)
class Sum:
    terms: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Product:
    factors: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Power:
    base: Expr
    exponent: Expr


@dataclass(frozen=True, slots=True)
class Apply:
    """A known function (sin, log, factorial, ...) or an unknown one (f, g), applied to its arguments."""

    function: str
    arguments: tuple[Expr, ...]


Expr: TypeAlias = Num | Name | Sum | Product | Power | Apply


@dataclass(frozen=True, slots=True)
class Bracket:
    """`(a, b)`, `[a, b)`, ...: a point or an interval. Only the other side of a comparison tells which."""

    left: str
    items: tuple[Value, ...]
    right: str


@dataclass(frozen=True, slots=True)
class Collection:
    """A set in braces. The empty set means "no solution"."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """A list without brackets. choice: whether "or" joins its items."""

    items: tuple[Value, ...]
    choice: bool = False


@dataclass(frozen=True, slots=True)
class Matrix:
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """sides[0] operators[0] sides[1] ...; operators are = < <= > >= != ~ (about) in."""

    sides: tuple[Value, ...]
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Combination:
    """Sets combined by an operator: union, intersection or difference."""

    operator: str
    parts: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Based:
    """Digits with a base, as in 204_5 or 0.101_2. digits: can begin with a minus."""

    digits: str
    base: int

    @property
    def value(self) -> Fraction:
        whole, _, decimals = self.digits.partition(".")
        return Fraction(int(whole + decimals, self.base), self.base ** len(decimals))

    def negated(self) -> Based:
        digits = self.digits.removeprefix("-")
        return Based(digits if digits != self.digits or digits == "0" else f"-{digits}", self.base)


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount of something. unit: canonical, such as (("cm", 2),); ("%", 1) is percent, ("deg", 1) degrees."""

    amount: Expr
    unit: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    terms: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day. half: "am", "pm", or "" if it is not stated; hours above 12, and 0, are of the 24-hour clock.

    ratio: the numbers as written, where the text could also be a ratio (12:30); empty where it could not (9:05).
    """

    hour: int
    minute: int
    second: int
    half: str = ""
    ratio: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice letter, and the text after it."""

    letter: str
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    words: str


Value: TypeAlias = (
    Num | Name | Sum | Product | Power | Apply | Bracket | Collection | Listing | Matrix | Relation
    | Combination | Based | Quantity | Ratio | Clock | Choice | Text
)  # fmt: skip

EXPRESSIONS = (Num, Name, Sum, Product, Power, Apply)
LISTS = (Listing, Collection)
ZERO, ONE, MINUS_ONE, HALF = Num(Fraction(0)), Num(Fraction(1)), Num(Fraction(-1)), Num(Fraction(1, 2))
INFINITY, PI, E = Name("inf"), Name("pi"), Name("e")
REALS = Name("reals")
_NO_NAMES: frozenset[str] = frozenset()
SPECIAL_FUNCTIONS = frozenset({"Gamma", "zeta", "Phi"})  # Phi: of the normal distribution
CONSTANTS = frozenset({"pi", "e", "i", "inf", "reals"})


@lru_cache(maxsize=1_024)
def integer(value: int) -> Num:
    return Num(Fraction(value))


def is_infinity(value: object) -> bool:
    return isinstance(value, Name) and value.name == "inf"


def is_one(value: object) -> bool:
    """Return whether a value is the number 1, and not a decimal such as 1.0."""
    return value is ONE or (isinstance(value, Num) and value.value == 1 and value.places is None)


def add(*terms: Expr) -> Expr:
    flat: list[Expr] = []
    total = Num(Fraction(0))
    seen = False
    for term in terms:
        for part in term.terms if isinstance(term, Sum) else (term,):
            if isinstance(part, Num):
                total = part if not seen else Num(_limited(total.value + part.value))
                seen = True
            else:
                flat.append(part)
    infinities = {_sign_of_infinity(part) for part in flat} - {0}
    if len(infinities) > 1:
        raise Undefined("infinity - infinity")
    if infinities:
        return INFINITY if infinities == {1} else Product((MINUS_ONE, INFINITY))
    if total.value or not flat:
        flat.append(total)
    return flat[0] if len(flat) == 1 else Sum(tuple(flat))


def multiply(*factors: Expr) -> Expr:
    flat: list[Expr] = []
    scale = ONE
    for factor in factors:
        for part in factor.factors if isinstance(factor, Product) else (factor,):
            if isinstance(part, Num):
                scale = part if scale is ONE else _scaled(scale, part)
            else:
                flat.append(part)
    if any(map(is_infinity, flat)):
        if not scale.value or len(flat) > 1:
            raise Undefined("infinity times an expression")
        return INFINITY if scale.value > 0 else Product((MINUS_ONE, INFINITY))
    if not scale.value:
        return scale
    if not is_one(scale) or not flat:
        flat.insert(0, scale)
    return flat[0] if len(flat) == 1 else Product(tuple(flat))


def negate(value: Expr) -> Expr:
    if isinstance(value, Num):
        return Num(-value.value, value.places)
    return multiply(MINUS_ONE, value)


def divide(top: Expr, bottom: Expr) -> Expr:
    if isinstance(bottom, Num):
        if not bottom.value:
            raise Undefined("division by zero")
        if isinstance(top, Num) and top.places is None and _bits(bottom.value) <= MAX_BITS:
            return Num(_limited(top.value / bottom.value))
    if is_infinity(top) and is_infinity(bottom):
        raise Undefined("infinity / infinity")
    return multiply(top, power(bottom, MINUS_ONE))


def power(base: Expr, exponent: Expr) -> Expr:
    if is_infinity(base) or is_infinity(exponent):
        raise Undefined("a power of infinity")
    if is_one(exponent):
        return base
    if isinstance(exponent, Num) and exponent.value.denominator == 1:
        count = exponent.value.numerator
        if count == 0 and base != ZERO:
            return ONE
        if isinstance(base, Num):
            if base.value == 0 and count <= 0:
                raise Undefined("zero to that power")
            if base.value in (0, 1, -1) or _bits(base.value) * abs(count) <= MAX_BITS:
                count = count % 2 if base.value == -1 else min(count, 1) if base.value in (0, 1) else count
                return Num(base.value**count)
        if isinstance(base, Power) and isinstance(base.exponent, Num) and base.exponent.value.denominator == 1:
            return power(base.base, multiply(base.exponent, exponent))
    return Power(base, exponent)


def _scaled(left: Num, right: Num) -> Num:
    """Return the product. A decimal times a power of ten, or times -1, stays a decimal."""
    value = _limited(left.value * right.value)
    for decimal, exact in ((left, right), (right, left)):
        if decimal.places is not None and exact.places is None:
            shift = _power_of_ten(abs(exact.value))
            if shift is not None:
                return Num(value, decimal.places - shift)
    return Num(value)


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _limited(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > 2 * MAX_BITS:
        raise UnreadableAnswer("a number is too large to write out")
    return value


def _power_of_ten(value: Fraction) -> int | None:
    top, bottom = value.numerator, value.denominator
    if (top != 1 and bottom != 1) or top == 0:
        return None
    digits = str(max(top, bottom)) if max(top, bottom).bit_length() < 12_000 else ""
    if not digits.startswith("1") or digits.strip("0") != "1":
        return None
    return (len(digits) - 1) * (1 if bottom == 1 else -1)


def _sign_of_infinity(value: Expr) -> int:
    if isinstance(value, Product):
        return -1 if value.factors == (MINUS_ONE, INFINITY) else 0
    return 1 if is_infinity(value) else 0


def names_in(value: object) -> frozenset[str]:
    """Return the free variables of a value, with the functions that are not known ones; constants do not count."""
    if isinstance(value, Num):
        return _NO_NAMES
    if isinstance(value, Name):
        return _NO_NAMES if value.name in CONSTANTS else frozenset({value.name})
    names: set[str] = {value.function} if isinstance(value, Apply) and value.function not in KNOWN_FUNCTIONS else set()
    for part in children(value):
        names |= names_in(part)
    return frozenset(names)


_ITEMS, _TERMS = attrgetter("items"), attrgetter("terms")
_PARTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Sum: _TERMS, Ratio: _TERMS, Product: attrgetter("factors"), Power: attrgetter("base", "exponent"),
    Apply: attrgetter("arguments"), Bracket: _ITEMS, Collection: _ITEMS, Listing: _ITEMS, Relation: attrgetter("sides"),
    Combination: attrgetter("parts"), Matrix: lambda value: sum(value.rows, ()),
    Quantity: lambda value: (value.amount,),
}  # fmt: skip
"""The values that a value of each kind is made of."""


def children(value: object) -> tuple[Any, ...]:
    """Return the values that a value is made of, in order."""
    parts = _PARTS.get(type(value))
    return parts(value) if parts else ()


def size_of(value: object) -> int:
    """Count the nodes of a value."""
    return 1 + sum(map(size_of, children(value)))


def holds(value: object, constant: Value) -> bool:
    """Return whether a value is a constant, or contains it."""
    return value == constant or any(holds(part, constant) for part in children(value))


def applies(value: object, functions: Container[str]) -> bool:
    """Return whether a value contains one of the functions."""
    known = isinstance(value, Apply) and value.function in functions
    return known or any(applies(part, functions) for part in children(value))
