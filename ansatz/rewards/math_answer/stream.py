"""A place in a list of tokens, with a bounded depth."""

from __future__ import annotations

from typing import NoReturn

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.lexer import Token
from ansatz.rewards.math_answer.values import Expr, Unreadable, Value

MAX_DEPTH = 50


class TokenStream:
    """tokens: may be rewritten at the place, as for the first digit of `\\frac12`. at: the next token."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = list(tokens)
        self.at = 0
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
            raise Unreadable(f"expected {texts[0]!r}, got {token.text!r}")
        self.at += 1
        return token.text

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH}")

    def is_word(self, text: str) -> bool:
        return self.token.kind == "word" and self.token.text.lower() == text

    def next_is(self, text: str) -> bool:
        following = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else self.token
        return following.kind == "op" and following.text == text


def expression(value: Value) -> Expr:
    """The value where an expression must stand."""
    if isinstance(value, v.EXPRESSIONS):
        return value
    if isinstance(value, v.Quantity) and value.unit == (("deg", 1),):
        return value.amount
    if isinstance(value, v.Quantity) and value.unit == (("%", 1),):
        return v.divide(value.amount, v.integer(100))
    if isinstance(value, v.Quantity):
        return value.amount
    raise Unreadable("no expression where one must stand")


def bad(what: str) -> NoReturn:
    raise Unreadable(f"{what} has no meaning here")
