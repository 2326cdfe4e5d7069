"""A calculator for exact arithmetic: `<calc>347*582</calc>` is answered by `<result>201954</result>`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from fractions import Fraction

from ansatz.environments.base import Environment
from ansatz.environments.tags import CallForm, TagEnvironment, check_tags
from ansatz.environments.tools import ToolEnvironment

_MAX_DIGITS = 400


class CalculationError(ValueError):
    """An expression that cannot be computed. The message is for the policy."""


def calculator(*, form: CallForm = "tags", call: str = "calc", result: str = "result") -> Environment:
    """Answers arithmetic with whole numbers, decimals, + - * / // % ** and brackets, exactly.

    form: "tags" calls it in tags, "chat" as the tool `calculator` in the form of the model's chat template.
    call: the tag around an expression. result: the tag around its value.
    """
    check_tags(form, call=call != "calc", result=result != "result")
    if form == "tags":
        return TagEnvironment(_answer, call=call, result=result, instant=True)

    def calculator(expression: str) -> str:
        """The exact value of an arithmetic expression with numbers, + - * / // % ** and brackets."""
        return _answer(expression)

    return ToolEnvironment([calculator], instant=True)


def calculate(expression: str) -> str:
    """Return the value as a whole number, a terminating decimal or otherwise a fraction. Raise CalculationError if
    there is none."""
    if len(expression) > 2 * _MAX_DIGITS:
        raise CalculationError("the expression is too long")
    try:
        source = expression.strip().replace("^", "**")
        return _written(_value(ast.parse(source, mode="eval").body, source))
    except ZeroDivisionError:
        raise CalculationError("division by zero") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, CalculationError):
            raise
        raise CalculationError("not an arithmetic expression") from None


def _answer(expression: str) -> str:
    try:
        return calculate(expression)
    except CalculationError as error:
        return f"error: {error}"


def _value(node: ast.AST, source: str) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.Constant) and type(node.value) is float:
        return _decimal(ast.get_source_segment(source, node) or "")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand, source)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        value = _OPERATIONS[type(node.op)](_value(node.left, source), _value(node.right, source))
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > 4 * _MAX_DIGITS:
            raise CalculationError("the value is too large")
        return value
    raise CalculationError("not an arithmetic expression")


def _decimal(literal: str) -> Fraction:
    """Return the exact value of a decimal, which a float would round."""
    literal = literal.replace("_", "").lower()
    if abs(int(literal.partition("e")[2] or 0)) >= _MAX_DIGITS:
        raise CalculationError("the value is too large")
    return Fraction(literal)


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise CalculationError("the exponent is not a whole number")
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size * abs(exponent) > 4 * _MAX_DIGITS:
        raise CalculationError("the value is too large")
    return base ** int(exponent)


_OPERATIONS: dict[type[ast.AST], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
    ast.Pow: _power,
}


def _written(value: Fraction) -> str:
    """Write a whole number, a terminating decimal with at most 12 places, or numerator/denominator."""
    scaled = value * 10**12
    if value.denominator == 1 or scaled.denominator != 1:
        return str(value)
    sign, digits = "-" if scaled < 0 else "", str(abs(scaled.numerator)).rjust(13, "0")
    return f"{sign}{digits[:-12]}.{digits[-12:].rstrip('0')}"
