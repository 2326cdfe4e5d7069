"""sympy on our own trees: objects are built node by node, never from text.

Only work that surely ends within milliseconds is handed over. An integral has a polynomial under it, a sum a polynomial
or a geometric term, a product a power of its index. sympy may search for minutes for anything else, and a response
would buy that time with one line; such answers are refused at once.
"""

# pyright: basic
# sympy has no types
from __future__ import annotations

from typing import Any

import sympy

from ansatz_verify import values as v
from ansatz_verify.functions import OPERATORS
from ansatz_verify.numeric import NoNumber
from ansatz_verify.values import Expr
from ansatz_verify.words import KNOWN_FUNCTIONS, NOTATION

_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}
_SAME_NAME = "sin cos tan cot sec csc sinh cosh tanh coth log floor arg factorial factorial2 binomial"
_FUNCTIONS: dict[str, str] = {name: name for name in _SAME_NAME.split()} | NOTATION["in_sympy"]
_MAX_EXPONENT = 1_000
_MAX_DEGREE = 20  # of a polynomial under an integral or a sum
_MAX_SIZE = 60  # nodes of an expression


def provably_equal(gold: Expr, answer: Expr) -> bool:
    """Return whether sympy simplifies the difference to zero.

    For worker processes only. Raises NoNumber for large ones.
    """
    if v.size_of(gold) + v.size_of(answer) > _MAX_SIZE:
        raise NoNumber("too large for sympy")
    return bool(sympy.simplify(build(gold) - build(answer)) == 0)


def build(value: Expr) -> Any:
    """Return the sympy object of a tree. Raises NoNumber for powers, factorials and the like that are too large."""
    if isinstance(value, v.Num):
        return sympy.Rational(value.value.numerator, value.value.denominator)
    if isinstance(value, v.Name):
        return _CONSTANTS.get(value.name) or sympy.Symbol(value.name)
    if isinstance(value, v.Sum):
        return sympy.Add(*(build(term) for term in value.terms))
    if isinstance(value, v.Product):
        return sympy.Mul(*(build(factor) for factor in value.factors))
    if isinstance(value, v.Power):
        base, exponent = build(value.base), build(value.exponent)
        if exponent.is_number and not abs(exponent) <= _MAX_EXPONENT:
            raise NoNumber("a power too large to work out")
        return sympy.Pow(base, exponent)
    if value.function in OPERATORS:
        return _with_bounds(value)
    arguments = [build(argument) for argument in value.arguments]
    if any(argument.is_number and not abs(argument) <= _MAX_EXPONENT for argument in arguments):
        raise NoNumber("an argument too large to work out")
    known = _FUNCTIONS.get(value.function) if value.function in KNOWN_FUNCTIONS else None
    function = getattr(sympy, known) if known else sympy.Function(value.function)
    return function(*arguments)


def _with_bounds(value: v.Apply) -> Any:
    """Return a sum, product or integral, worked out. Raises NoNumber if sympy might not finish it."""
    inner, index, *ends = value.arguments
    if not isinstance(index, v.Name) or any(v.size_of(end) > _MAX_SIZE // 4 for end in ends):
        raise NoNumber("bounds too large to work out")
    if not _ends_soon(value.function, inner, index.name):
        raise NoNumber(f"{value.function} of a function that sympy might not finish")
    body, variable, *bounds = (build(argument) for argument in value.arguments)
    kind = {"sum": sympy.Sum, "prod": sympy.Product, "int": sympy.Integral}[value.function]
    return kind(body, (variable, *bounds)).doit()


def _ends_soon(function: str, body: Expr, index: str) -> bool:
    """Return whether sympy works out a sum, product or integral of a body directly, without a search."""
    if function == "prod":
        return body == v.Name(index) or index not in v.names_in(body)
    return _degree(body, index) is not None or (function == "sum" and _is_geometric(body, index))


def _without_reciprocal(factor: Expr) -> Expr:
    return factor.base if isinstance(factor, v.Power) and factor.exponent == v.MINUS_ONE else factor


def _is_geometric(body: Expr, index: str) -> bool:
    """Return whether a body is a product of constants and of constants raised to a power that is linear in the
    index.
    """
    factors = body.factors if isinstance(body, v.Product) else (body,)
    powers = [_without_reciprocal(factor) for factor in factors if index in v.names_in(factor)]
    return all(
        isinstance(power, v.Power) and index not in v.names_in(power.base) and _degree(power.exponent, index) == 1
        for power in powers
    )


def _degree(value: Expr, index: str) -> int | None:
    """Return the degree of a polynomial in the index, None for anything else."""
    if index not in v.names_in(value):
        return 0 if not any(isinstance(part, v.Apply) for part in (value, *v.children(value))) else None
    if isinstance(value, v.Name):
        return 1
    if isinstance(value, v.Sum | v.Product):
        degrees = [_degree(part, index) for part in v.children(value)]
        known = [degree for degree in degrees if degree is not None]
        total = max(known, default=0) if isinstance(value, v.Sum) else sum(known)
        return total if len(known) == len(degrees) and total <= _MAX_DEGREE else None
    if isinstance(value, v.Power) and isinstance(value.exponent, v.Num) and value.exponent.value.denominator == 1:
        base, exponent = _degree(value.base, index), int(value.exponent.value)
        return base * exponent if base is not None and exponent >= 0 and base * exponent <= _MAX_DEGREE else None
    return None
