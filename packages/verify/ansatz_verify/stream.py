"""The state that all parts of the parser share: a place in a list of tokens, a bounded depth, and a few flags."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn

from ansatz_verify import values as v
from ansatz_verify.lexer import Token
from ansatz_verify.values import Expr, UnreadableAnswer, Value

MAX_DEPTH = 50
FUNCTION_LETTERS = frozenset("fgFGP") | v.SPECIAL_FUNCTIONS
"""Names whose bracket always holds arguments."""


class Grammar(ABC):
    """A list of tokens, a place in it, and the rules that call each other. `grammar.Parser` implements all of them.

    given: the tokens as they were written. tokens: a copy that the parser can rewrite at the place, as for the first
    digit of `\\frac12`. at: the next token.
    turned: a bit for each `\\pm`, set where it is a minus in this pass; -1: everywhere. num_signs: how many were read.
    saw_sign, unreduced: whether the pass came across one.
    degrees: "deg", "C" or "F" after a degree sign. letters_apart: letters are variables, never units.
    list_depth: the depth at which a `\\pm` doubles the clause that holds it.
    conditions: relations behind the clause, as in `(x > 0)` or `for x > 0`.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.given, self.tokens = tokens, [*tokens]
        self.at: int = 0
        self.depth: int = 0
        self.turned: int = 0
        self.num_signs: int = 0
        self.saw_sign: bool = False
        self.degrees: str = ""
        self.letters_apart: bool = False
        self.unreduced: bool = False
        self.list_depth: int = 0
        self.in_function: int = 0
        self.bars: int = 0
        self.conditions: list[Value] = []

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def is_op(self, *texts: str) -> bool:
        token = self.tokens[self.at]
        return token.kind == "op" and token.text in texts

    def take_op(self, *texts: str) -> str | None:
        token = self.tokens[self.at]
        taken = token.kind == "op" and token.text in texts
        self.at += taken
        return token.text if taken else None

    def expect_close(self, *texts: str) -> str:
        token = self.token
        if token.kind != "close" or token.text not in texts:
            raise UnreadableAnswer(f"expected {texts[0]!r}, got {token.shown}")
        self.at += 1
        return token.text

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableAnswer(f"nested deeper than {MAX_DEPTH} levels")

    def is_word(self, *texts: str) -> bool:
        return self.token.kind == "word" and self.token.text.lower() in texts

    @abstractmethod
    def list(self) -> Value: ...

    @abstractmethod
    def clause(self) -> Value: ...

    @abstractmethod
    def sum(self) -> Value: ...

    @abstractmethod
    def product(self) -> Value: ...

    @abstractmethod
    def unary(self) -> Value: ...

    @abstractmethod
    def postfix(self) -> Value: ...

    @abstractmethod
    def primary(self) -> Value: ...

    @abstractmethod
    def exponent(self) -> Expr: ...

    @abstractmethod
    def starts_factor(self) -> bool: ...

    def expr(self) -> Expr:
        return expression(self.sum())

    def quotient(self, top: Expr, bottom: Expr) -> Expr:
        """Return a quotient, and remember a fraction of integers that is not in lowest terms."""
        if isinstance(top, v.Num) and isinstance(bottom, v.Num):
            above, below = top.value, bottom.value
            if above.denominator == 1 == below.denominator:
                self.unreduced |= below != 0 and (below <= 1 or math.gcd(int(above), int(below)) > 1)
            elif below:
                self.unreduced |= (above / below).denominator != below or below == 1
        return v.divide(top, bottom)


def expression(value: Value) -> Expr:
    """Return the value as an expression. Raises UnreadableAnswer for any other kind of value."""
    if isinstance(value, v.Quantity):
        value = v.divide(value.amount, v.integer(100)) if value.unit == (("%", 1),) else value.amount
    if not isinstance(value, v.EXPRESSIONS):
        raise UnreadableAnswer("an expression was expected")
    return value


def bad(what: str) -> NoReturn:
    raise UnreadableAnswer(f"{what} is not supported here")
