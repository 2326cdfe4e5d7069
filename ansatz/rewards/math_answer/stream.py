"""The state that all parts of the parser share: a place in a list of tokens, a bounded depth, and what was seen."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.lexer import Token
from ansatz.rewards.math_answer.values import Expr, UnreadableAnswer, Value

MAX_DEPTH = 50
FUNCTION_LETTERS = frozenset("fgFGP") | v.SPECIAL_FUNCTIONS


class TokenStream:
    """A list of tokens and a place in it.

    given: the tokens as they were written. tokens: a copy that the parser can rewrite at the place, as for the first
    digit of `\\frac12`. at: the next token.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.given, self.tokens = tokens, [*tokens]
        self.at: int = 0
        self.depth: int = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def is_op(self, *texts: str) -> bool:
        token = self.tokens[self.at]
        return token.kind == "op" and token.text in texts

    def take_op(self, *texts: str) -> str | None:
        token = self.tokens[self.at]
        if token.kind != "op" or token.text not in texts:
            return None
        self.at += 1
        return token.text

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

    def is_word(self, text: str) -> bool:
        return self.token.kind == "word" and self.token.text.lower() == text

    def next_is(self, text: str) -> bool:
        following = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else self.token
        return following.kind == "op" and following.text == text


class Grammar(TokenStream, ABC):
    """The rules that the parts of the parser call in each other. `grammar.Parser` implements all of them.

    turned: a bit for each `\\pm`, set where it is a minus in this pass; -1: everywhere. num_signs: how many were read.
    saw_sign, unreduced: what the pass came across.
    degrees: "deg", "C" or "F" after a degree sign. letters_apart: letters are variables, never units.
    congruent: the side of a congruence is read, so `mod` belongs to the congruence.
    list_depth: the depth at which a `\\pm` doubles the clause that holds it. functions: the names whose bracket always
    holds arguments. called: the other names whose bracket holds a single number or name, as in x(0), so far.
    multiplied: those whose bracket was multiplied, as in x(t - 1).
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        super().__init__(tokens)
        self.turned: int = 0
        self.num_signs: int = 0
        self.saw_sign: bool = False
        self.degrees: str = ""
        self.letters_apart: bool = False
        self.congruent: bool = False
        self.unreduced: bool = False
        self.list_depth: int = 0
        self.in_function: int = 0
        self.bars: int = 0
        self.functions: frozenset[str] = FUNCTION_LETTERS
        self.called: set[str] = set()
        self.multiplied: set[str] = set()

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

    def note_division(self, top: Expr, bottom: Expr) -> None:
        """Remember a fraction of integers that is not in lowest terms."""
        if isinstance(top, v.Num) and isinstance(bottom, v.Num):
            above, below = top.value, bottom.value
            if above.denominator == 1 == below.denominator:
                self.unreduced |= below != 0 and (below <= 1 or math.gcd(int(above), int(below)) > 1)
            elif below:
                self.unreduced |= (above / below).denominator != below or below == 1


def expression(value: Value) -> Expr:
    """Return the value as an expression. Raises UnreadableAnswer for any other kind of value."""
    if isinstance(value, v.EXPRESSIONS):
        return value
    if isinstance(value, v.Quantity) and value.unit == (("deg", 1),):
        return value.amount
    if isinstance(value, v.Quantity) and value.unit == (("%", 1),):
        return v.divide(value.amount, v.integer(100))
    if isinstance(value, v.Quantity):
        return value.amount
    raise UnreadableAnswer("an expression was expected")


def bad(what: str) -> NoReturn:
    raise UnreadableAnswer(f"{what} is not supported here")
