"""Countdown: make the target from the given numbers with + - * / and brackets, using each number once.

Our own parser reads this grammar into exact fractions; nothing is evaluated as code:

sum      product (("+" | "-") product)*
product  factor (("*" | "/") factor)*
factor   "-" factor | "(" sum ")" | digits
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from ansatz_verify.marks import Mode, extract

from ansatz.errors import DataError
from ansatz.rewards.base import RewardResult
from ansatz.types import Problem, Reason, Rollout, Verdict

_MAX_CHARS = 1_000
_MAX_DEPTH = 50
_MAX_DIGITS = 15
_TOKEN = re.compile(r"[0-9]+|[-+*/()]")
_SPELLINGS = {
    r"\times": "*", r"\cdot": "*", r"\div": "/", r"\left": "", r"\right": "", r"\,": "",
    r"\(": " ", r"\)": " ", r"\[": " ", r"\]": " ", r"\ ": " ", r"\!": " ", r"\;": " ",  # 4\ 2 is not 42
    "×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")", "{": "(", "}": ")", "$": "",
}  # fmt: skip
_SPELLING = re.compile("|".join(re.escape(spelling) for spelling in _SPELLINGS))
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")


class NotAnExpression(ValueError):
    """The text is not an arithmetic expression."""


@dataclass(frozen=True, slots=True)
class Expression:
    """value: None if it divides by zero. numbers: as written, in order."""

    value: Fraction | None
    numbers: tuple[int, ...]


def countdown(
    rollouts: Sequence[Rollout],
    *,
    correct: float = 1.0,
    wrong: float = 0.0,
    readable: float | None = None,
    use_all: bool = True,
    mode: Mode = "strict",
) -> list[RewardResult]:
    """`correct` for an expression of the given numbers that equals the target, else `wrong`.

    The problem's meta holds nums (a list of integers) and target (an integer); DataError if it does not.
    readable: paid instead of `wrong` for an answer that is an arithmetic expression (TinyZero pays 0.1). null: `wrong`.
    use_all: each number exactly once, else at most once. mode: where the answer is looked for, see `math_answer`.
    """
    verdicts = [_verdict(rollout, use_all=use_all, mode=mode) for rollout in rollouts]
    values = {Reason.EQUAL: correct, Reason.DIFFERENT: wrong if readable is None else readable}
    return [RewardResult(value=values.get(verdict.reason, wrong), verdict=verdict) for verdict in verdicts]


def check_golds(problems: Iterable[Problem]) -> None:
    """Raise DataError, with the problem's id, for the first problem without numbers or target."""
    for problem in problems:
        _puzzle(problem)


def _verdict(rollout: Rollout, *, use_all: bool, mode: Mode) -> Verdict:
    numbers, target = _puzzle(rollout.prompt.problem)
    answer = extract(rollout.said, mode=mode)
    if answer is None:
        return Verdict(correct=False, reason=Reason.NO_ANSWER, stage="countdown")
    try:
        reason = Reason.EQUAL if solves(answer, numbers, target, use_all=use_all) else Reason.DIFFERENT
    except NotAnExpression:
        reason = Reason.UNPARSED
    return Verdict(correct=reason is Reason.EQUAL, reason=reason, extracted=answer, stage="countdown")


def solves(answer: str, numbers: Sequence[int], target: int, *, use_all: bool = True) -> bool:
    """Tell whether the expression makes the target from the numbers. It can end in `= target`. Raises
    NotAnExpression."""
    left, equals, right = answer.partition("=")
    expression = read(left)
    if equals and read(right) != Expression(Fraction(target), (target,)):
        return False
    used, available = Counter(expression.numbers), Counter(numbers)
    return expression.value == target and (used == available if use_all else used <= available)


def read(text: str) -> Expression:
    """Read an arithmetic expression, plain or in LaTeX. Raises NotAnExpression for other and for long text."""
    if len(text) > _MAX_CHARS:
        raise NotAnExpression(f"longer than {_MAX_CHARS} characters")
    count = 1
    while count:  # from the innermost fraction outwards
        text, count = _FRACTION.subn(r"((\1)/(\2))", text)
    plain = _SPELLING.sub(lambda match: _SPELLINGS[match[0]], text)
    tokens = _TOKEN.findall(plain)
    if _TOKEN.sub("", plain).strip():
        raise NotAnExpression("contains more than numbers, + - * / and brackets")
    return _Parser(tokens).whole()


class _Parser:
    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = (*tokens, "")
        self._at = 0
        self._depth = 0
        self._numbers: list[int] = []

    def whole(self) -> Expression:
        value = self._sum()
        if self._tokens[self._at]:
            raise NotAnExpression(f"{self._tokens[self._at]!r} is out of place")
        return Expression(value, tuple(self._numbers))

    def _take(self, *expected: str) -> str | None:
        token = self._tokens[self._at]
        if token not in expected:
            return None
        self._at += 1
        return token

    def _sum(self) -> Fraction | None:
        value = self._product()
        while sign := self._take("+", "-"):
            other = self._product()
            value = None if value is None or other is None else value + other if sign == "+" else value - other
        return value

    def _product(self) -> Fraction | None:
        value = self._factor()
        while sign := self._take("*", "/"):
            other = self._factor()
            if value is None or other is None or (sign == "/" and other == 0):
                value = None
            else:
                value = value * other if sign == "*" else value / other
        return value

    def _factor(self) -> Fraction | None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise NotAnExpression(f"nested deeper than {_MAX_DEPTH}")
        value = self._unit()
        self._depth -= 1
        return value

    def _unit(self) -> Fraction | None:
        if self._take("-"):
            value = self._factor()
            return None if value is None else -value
        if self._take("("):
            value = self._sum()
            if not self._take(")"):
                raise NotAnExpression("a bracket is not closed")
            return value
        digits = self._tokens[self._at]
        if not digits.isdecimal() or len(digits) > _MAX_DIGITS:
            raise NotAnExpression("a number is missing or too long")
        self._at += 1
        self._numbers.append(int(digits))
        return Fraction(int(digits))


def _puzzle(problem: Problem) -> tuple[list[int], int]:
    numbers, target = problem.meta.get("nums"), problem.meta.get("target")
    if not isinstance(numbers, list | tuple) or not numbers or not _integers((*cast("list[Any]", numbers), target)):
        raise DataError(
            f"problem {problem.id!r}: Countdown needs meta nums = [integers] and target = integer; got nums = "
            f"{numbers!r:.80}, target = {target!r:.40}. Give both in the data."
        )
    return list(cast("list[int]", numbers)), cast("int", target)


def _integers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)
