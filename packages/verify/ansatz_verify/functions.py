"""Functions of expressions. Small results are computed exactly, large ones stay trees."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

from ansatz_verify import values as v
from ansatz_verify.values import Expr, UnreadableAnswer, Value
from ansatz_verify.words import KNOWN_FUNCTIONS

MAX_FACTORIAL = 1_000
MAX_SUMMANDS = 200
MAX_SUM_SIZE = 4_000  # summands times nodes of the body
OPERATORS = frozenset({"sum", "prod", "int"})
_BASE_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}


def _int(value: Expr) -> int | None:
    return int(value.value) if isinstance(value, v.Num) and value.value.denominator == 1 else None


def factorial(value: Expr, *, double: bool = False) -> Expr:
    n = _int(value)
    if n is not None and 0 <= n <= MAX_FACTORIAL:
        return v.integer(math.prod(range(n, 0, -2)) if double else math.factorial(n))
    return v.Apply("factorial2" if double else "factorial", (value,))


def binomial(top: Expr, bottom: Expr) -> Expr:
    n, k = _int(top), _int(bottom)
    if n is not None and k is not None and 0 <= n <= MAX_FACTORIAL and k >= 0:
        return v.integer(math.comb(n, k))
    return v.Apply("binomial", (top, bottom))


def apply(name: str, arguments: tuple[Expr, ...], base: Expr | None) -> Expr:
    """Apply a known function to its arguments. base: the base of a logarithm."""
    first = arguments[0]
    if name == "sqrt":
        return v.power(first, v.HALF)
    if name == "cis":
        return v.add(v.Apply("cos", arguments), v.multiply(v.Name("i"), v.Apply("sin", arguments)))
    if name == "exp":
        return v.power(v.E, first)
    if name in ("log", "lg", "ln"):
        if len(arguments) > 1:
            raise UnreadableAnswer("a logarithm has several arguments")
        return _logarithm(name, first, base)
    numbers = [a.value for a in arguments if isinstance(a, v.Num)]
    if len(numbers) == len(arguments):
        folded = _folded(name, numbers)
        if folded is not None:
            return v.Num(folded)
    if len(arguments) > 1 and name in KNOWN_FUNCTIONS and name not in ("max", "min", "gcd", "lcm"):
        raise UnreadableAnswer(f"{name} has {len(arguments)} arguments")
    return v.Apply(name, arguments)


def _logarithm(name: str, argument: Expr, base: Expr | None) -> Expr:
    """Return a quotient of natural logarithms. A `log` without a base stays an atom, because its base is not known."""
    if name == "ln" or base == v.E:
        return v.ZERO if argument == v.ONE else v.Apply("ln", (argument,))
    base = base or (v.integer(10) if name == "lg" else None)
    if base is None:
        return v.ZERO if argument == v.ONE else v.Apply("log", (argument,))
    return v.divide(v.Apply("ln", (argument,)), v.Apply("ln", (base,)))


def _folded(name: str, numbers: list[Fraction]) -> Fraction | None:
    if name == "abs":
        return abs(numbers[0])
    if name == "floor":
        return Fraction(math.floor(numbers[0]))
    if name == "ceil":
        return Fraction(math.ceil(numbers[0]))
    if name == "sgn":
        return Fraction((numbers[0] > 0) - (numbers[0] < 0))
    if name in ("max", "min"):
        return max(numbers) if name == "max" else min(numbers)
    if name in ("gcd", "lcm") and all(n.denominator == 1 for n in numbers):
        return Fraction((math.gcd if name == "gcd" else math.lcm)(*(int(n) for n in numbers)))
    return None


def based(digits: str, label: str) -> v.Based:
    """Return digits with their base. Raises UnreadableAnswer for digits that the base does not have."""
    label = label.strip("()").lower()
    whole, point, decimals = digits.partition(".")
    base = int(label) if label.isdigit() and len(label) < 4 else _BASE_WORDS.get(label, 0)
    try:
        int(whole + decimals, base if 2 <= base <= 36 else 0)
    except ValueError as error:
        raise UnreadableAnswer(f"{digits!r} is not a number in base {label!r}") from error
    if not 2 <= base <= 36:
        raise UnreadableAnswer(f"{label!r} is not a base from 2 to 36")
    decimals = decimals.rstrip("0")
    return v.Based((whole.lstrip("0") or "0").upper() + (point + decimals.upper() if decimals else ""), base)


def with_bounds(name: str, low: Value | None, high: Expr | None, body: Expr) -> Expr:
    """Return a sum, product or integral.

    Short sums and products are computed here; the rest is left to algebra.
    """
    if name == "int":
        variable, inner = _integrand(body)
        return v.Apply("int", (*_with_index(inner, variable), _expression(low), _expression(high)))
    if not isinstance(low, v.Relation) or not isinstance(low.sides[0], v.Name):
        raise UnreadableAnswer(f"\\{name} has no variable")
    variable, start = low.sides[0], _expression(low.sides[1])
    if any(variable.name in each.partition("_")[2] for each in v.names_in(body)):
        raise UnreadableAnswer("a name has the index of a sum")
    body, variable = _with_index(body, variable)  # an index i is not the imaginary unit
    first, last = _int(start), _int(_expression(high))
    if first is not None and last is not None:
        if last - first > MAX_SUMMANDS:
            raise UnreadableAnswer(f"a sum has more than {MAX_SUMMANDS} terms")
        if (last - first + 1) * v.size_of(body) > MAX_SUM_SIZE:
            raise UnreadableAnswer("a sum is too large to write out")
        terms = [substitute(body, variable.name, v.integer(k)) for k in range(first, last + 1)]
        return (v.add if name == "sum" else v.multiply)(v.ZERO if name == "sum" else v.ONE, *terms)
    return v.Apply(name, (body, variable, start, _expression(high)))


def _with_index(body: Expr, variable: v.Name) -> tuple[Expr, v.Name]:
    """Return a body and its bound variable under a name that does not depend on the letter: only the place counts."""
    index = v.Name(f"index {sum(name.startswith('index') for name in v.names_in(body))}")
    return mapped(body, lambda part: index if part == variable else part), index


def substitute(value: Expr, name: str, by: Expr) -> Expr:
    """Return an expression with a number substituted for a name, simplified again."""

    def change(part: Expr) -> Expr:
        if isinstance(part, v.Apply):
            return apply(part.function, part.arguments, None)
        return by if part == v.Name(name) else part

    return mapped(value, change)


def mapped(value: Any, change: Callable[[Expr], Expr]) -> Any:
    """Return a value with every name and application replaced by `change`, from the leaves up, and simplified again."""
    if isinstance(value, tuple):
        return tuple(mapped(item, change) for item in cast("tuple[Any, ...]", value))
    if isinstance(value, v.Name):
        return change(value)
    if isinstance(value, v.Num) or not dataclasses.is_dataclass(value):
        return value
    parts = [mapped(getattr(value, field.name), change) for field in dataclasses.fields(value)]
    if isinstance(value, v.Sum | v.Product):
        return (v.add if isinstance(value, v.Sum) else v.multiply)(*parts[0])
    if isinstance(value, v.Power):
        return v.power(*parts)
    rebuilt = type(value)(*parts)
    return change(rebuilt) if isinstance(rebuilt, v.Apply) else rebuilt


def _expression(value: Value | None) -> Expr:
    if value is None or not isinstance(value, v.EXPRESSIONS):
        raise UnreadableAnswer("a bound is not an expression")
    return value


def _integrand(body: Expr) -> tuple[v.Name, Expr]:
    """Return the variable and the integrand. `x^2 dx` is parsed as a product that ends in d and x."""
    factors = body.factors if isinstance(body, v.Product) else (body,)
    if len(factors) >= 2 and factors[-2] == v.Name("d") and isinstance(factors[-1], v.Name):
        return factors[-1], v.multiply(v.ONE, *factors[:-2])
    raise UnreadableAnswer("an integral has no variable")
