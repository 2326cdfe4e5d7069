"""sympy on our own trees: objects are built node by node, never from text."""

from __future__ import annotations

from typing import Any

import sympy

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.functions import OPERATORS
from ansatz.rewards.math_answer.values import Expr

_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}
_NAMES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "ln": "log", "abs": "Abs", "ceil": "ceiling",
    "sgn": "sign", "max": "Max", "min": "Min", "Re": "re", "Im": "im",
}  # fmt: skip
_MAX_EXPONENT = 1_000


def provably_equal(gold: Expr, answer: Expr) -> bool:
    """Whether sympy simplifies the difference to zero. May take for ever: for worker processes only."""
    return bool(sympy.simplify(build(gold) - build(answer)) == 0)


def build(value: Expr) -> Any:
    """The sympy object of a tree. Powers, factorials and the like that are too large to work out are left as they are."""
    if isinstance(value, v.Num):
        return sympy.Rational(value.value.numerator, value.value.denominator)
    if isinstance(value, v.Name):
        return _CONSTANTS.get(value.name) or sympy.Symbol(value.name)
    if isinstance(value, v.Sum):
        return sympy.Add(*(build(term) for term in value.terms))
    if isinstance(value, v.Product):
        return sympy.Mul(*(build(factor) for factor in value.factors))
    if isinstance(value, v.Power):
        exponent = value.exponent
        small = isinstance(exponent, v.Num) and abs(exponent.value) <= _MAX_EXPONENT
        return sympy.Pow(build(value.base), build(exponent), evaluate=small or bool(v.names_in(value)))
    if value.function in OPERATORS:
        return _with_bounds(value)
    arguments = [build(argument) for argument in value.arguments]
    name = _NAMES.get(value.function, value.function)
    small = all(not argument.is_number or abs(argument) <= _MAX_EXPONENT for argument in arguments)
    function = getattr(sympy, name, None) if len(name) > 1 else None
    if function is None:
        return sympy.Function(name)(*arguments)
    return function(*arguments) if small else sympy.Function(name)(*arguments)


def _with_bounds(value: v.Apply) -> Any:
    """A sum, product, integral or limit, worked out."""
    body, variable, *bounds = (build(argument) for argument in value.arguments)
    if value.function == "lim":
        return sympy.limit(body, variable, bounds[0])
    kind = {"sum": sympy.Sum, "prod": sympy.Product, "int": sympy.Integral}[value.function]
    return kind(body, (variable, *bounds)).doit()
