"""sympy on our own trees: objects are built node by node, never from text."""

# pyright: basic
# sympy has no types
from __future__ import annotations

from typing import Any

import sympy

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.functions import OPERATORS
from ansatz.rewards.math_answer.numeric import NoNumber
from ansatz.rewards.math_answer.values import Expr
from ansatz.rewards.math_answer.words import words_of_text

_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}
_SAME_NAME = words_of_text("sin cos tan cot sec csc sinh cosh tanh coth log floor arg factorial factorial2 binomial")
_FUNCTIONS = {
    **{name: name for name in _SAME_NAME},
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "ln": "log", "abs": "Abs",
    "ceil": "ceiling", "sgn": "sign", "max": "Max", "min": "Min", "Re": "re", "Im": "im",
}  # fmt: skip
_MAX_EXPONENT = 1_000


def provably_equal(gold: Expr, answer: Expr) -> bool:
    """Whether sympy simplifies the difference to zero. May take for ever: for worker processes only."""
    return bool(sympy.simplify(build(gold) - build(answer)) == 0)


def build(value: Expr) -> Any:
    """The sympy object of a tree. Raises NoNumber for powers, factorials and the like that are too large."""
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
    known = _FUNCTIONS.get(value.function)
    function = getattr(sympy, known) if known else sympy.Function(value.function)
    return function(*arguments)


def _with_bounds(value: v.Apply) -> Any:
    """A sum, product, integral or limit, worked out."""
    body, variable, *bounds = (build(argument) for argument in value.arguments)
    if value.function == "lim":
        return sympy.limit(body, variable, bounds[0])
    kind = {"sum": sympy.Sum, "prod": sympy.Product, "int": sympy.Integral}[value.function]
    return kind(body, (variable, *bounds)).doit()
