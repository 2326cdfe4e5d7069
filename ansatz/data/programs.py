"""Program-of-thought demonstrations from worked solutions: the calculations of a solution as a Python program.

Two forms of calculation are read: GSM8K's annotations, as in "48/2 = <<48/2=24>>24 clips", and lines that are an
equation, as in the solutions of `word_problems`. Each becomes a line of the program. A number that an earlier line
computed becomes its variable, so that the program follows the reasoning and not only its last sum:

    a = 48/2
    b = 48+a
    print(b)

    sft: {source: programs, split: train, of: {source: jsonl, path: gsm8k_train.jsonl, answer_from: "####"}}

With `form: calculator`, each becomes a call of the calculator (`environments/calculator.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from string import ascii_lowercase
from typing import Any, Literal

from ansatz.data.long_numbers import write_calls
from ansatz.data.mapped import inner_source
from ansatz.errors import DataError
from ansatz.types import Problem

_ANNOTATION = re.compile(r"<<([^<>=]+)=([^<>=]+)>>")
_EQUATION = re.compile(r"^(?=[^-+*/=\n]*+[-+*/])([^=\n]++)=([^=\n]++)$", re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])(?:\d++(?:\.\d*+)?+|\.\d++)(?![\w.])")
_EXPRESSION = re.compile(r"[\d.+\-*/() ]+")
_LONGEST_EXPRESSION = 200  # characters
_MOST_LINES = len(ascii_lowercase)


def programs(
    *,
    split: str,
    of: Mapping[str, Any],
    count: int | None = None,
    form: Literal["program", "calculator"] = "program",
) -> Sequence[Problem]:
    """Return the problems of another source, each with a Python program, or calls of the calculator, as its solution.

    of: {source, ...settings of that source}. Problems whose calculations cannot be read, or do not end with the gold
    answer, are left out. count: how many to keep, spread evenly over the source; null keeps all.
    form: "program" writes a Python program, "calculator" a call for each calculation, and the answer in a box.

    Raise DataError if none remains, or fewer than `count`.
    """
    inner = inner_source(of, split=split, named="programs: of.source")
    read = ((problem, _calculations(problem.solution or "", problem.answer)) for problem in inner)
    kept = [(problem, calculations) for problem, calculations in read if calculations]
    if not kept:
        raise DataError(
            f"programs: none of the {len(inner)} solutions has calculations that end with the gold answer. Use a "
            "source with GSM8K's annotations (<<48/2=24>>), or with lines such as 48/2 = 24."
        )
    size = len(kept) if count is None else count
    if not 1 <= size <= len(kept):
        raise DataError(f"programs: count = {size}, expected 1 to {len(kept)}, which the source has.")
    chosen = (kept[index * len(kept) // size] for index in range(size))
    if form == "program":
        return [
            replace(problem, solution=f"```python\n{_program(calculations)}\n```") for problem, calculations in chosen
        ]
    return [_with_calls(problem, calculations) for problem, calculations in chosen]


def program_of(solution: str, answer: str) -> str | None:
    """Return the program that computes the answer as the solution does; None if there is no such program."""
    calculations = _calculations(solution, answer)
    return _program(calculations) if calculations else None


def _program(calculations: Sequence[tuple[str, Fraction]]) -> str:
    lines: list[str] = []
    names: dict[Fraction, str] = {}
    for name, (expression, value) in zip(ascii_lowercase, calculations, strict=False):
        lines.append(f"{name} = {_NUMBER.sub(lambda match: names.get(Fraction(match[0]), match[0]), expression)}")
        names[value] = name
    return "\n".join([*lines, f"print({ascii_lowercase[len(lines) - 1]})"])


def _with_calls(problem: Problem, calculations: Sequence[tuple[str, Fraction]]) -> Problem:
    work, observations = write_calls([(expression, _written(value)) for expression, value in calculations])
    solution = f"{work}\\boxed{{{problem.answer}}}"
    return replace(problem, solution=solution, meta={**problem.meta, "observations": observations})


def _written(value: Fraction) -> str:
    """Write a value as the calculator does."""
    if value.denominator == 1 or 10**12 % value.denominator:
        return str(value)
    return f"{Decimal(value.numerator) / value.denominator:f}"


def _calculations(solution: str, answer: str) -> list[tuple[str, Fraction]]:
    """Return expression and value of each calculation, in order; none if one does not hold, or the last value is not
    the answer."""
    pattern = _ANNOTATION if _ANNOTATION.search(solution) else _EQUATION
    found: list[tuple[str, Fraction]] = []
    for expression, result in pattern.findall(solution):
        value = _value(expression.strip())
        if value is None or value != _number(result) or len(found) == _MOST_LINES:
            return []
        found.append((expression.strip(), value))
    return found if found and found[-1][1] == _number(answer) else []


def _number(text: str) -> Fraction | None:
    if len(text) > _LONGEST_EXPRESSION or "e" in text.lower():  # 1e999999999 would take hours
        return None
    try:
        return Fraction(text.strip().replace(",", "").removeprefix("$"))
    except (ValueError, ZeroDivisionError):
        return None


def _value(expression: str) -> Fraction | None:
    """Return the exact value of a sum, difference, product or quotient of numbers; None for anything else."""
    if len(expression) > _LONGEST_EXPRESSION or not _EXPRESSION.fullmatch(expression):
        return None
    try:
        return _evaluate(ast.parse(expression, mode="eval").body, expression)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _evaluate(node: ast.expr, text: str) -> Fraction:
    match node:
        case ast.Constant(value=int() | float()):
            return Fraction(ast.get_source_segment(text, node) or "")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, text)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as op, right=right):
            a, b = _evaluate(left, text), _evaluate(right, text)
            if isinstance(op, ast.Add):
                return a + b
            if isinstance(op, ast.Sub):
                return a - b
            return a * b if isinstance(op, ast.Mult) else a / b
    raise ValueError(f"no arithmetic: {ast.dump(node)}")
