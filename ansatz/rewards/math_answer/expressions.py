"""The lower half of the grammar: from a sum down to a number. Depth is bounded; only values are built.

sum       product ((+|-|pm) product)*
product   unary ((*|/|nothing) unary)*
unary     (+|-|pm) unary | postfix
postfix   primary (^ exponent | _ subscript | ! | % | degrees)*
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.environments import matrix_from, system_from
from ansatz.rewards.math_answer.functions import (
    OPERATORS,
    apply,
    based,
    binomial,
    factorial,
    modulo,
    transposed,
    with_bounds,
)
from ansatz.rewards.math_answer.lexer import Token
from ansatz.rewards.math_answer.stream import MAX_DEPTH, TokenStream, bad, expression
from ansatz.rewards.math_answer.values import Expr, Unreadable, Value
from ansatz.rewards.math_answer.words import CONNECTIVES, INVERSES, unit_name

_CLOSED_BY = {"(": ")]", "[": "])", "langle": "rangle", "lfloor": "rfloor", "lceil": "rceil", "\\{": "\\}", "{": "}"}
_ADDED = (*v.EXPRESSIONS, v.Quantity)
_UNKNOWN_FUNCTIONS = frozenset("fgFGP")
_DEGREE = v.divide(v.PI, v.integer(180))


class Expressions(TokenStream, ABC):
    """The lower half of a parser; `list` and `clause`, the upper half, are `grammar.Parser`'s.

    sign: which of the two values a `\\pm` stands for. saw_sign, degrees, unreduced: what was met on the way.
    """

    def __init__(self, tokens: list[Token], *, sign: int = 1) -> None:
        super().__init__(tokens)
        self.saw_sign = False
        self.unreduced = False
        self.sign = sign
        self._in_function = 0
        self._bars = 0
        self.degrees = False

    # what stands in brackets is a list again

    @abstractmethod
    def list(self) -> Value: ...

    @abstractmethod
    def clause(self) -> Value: ...

    # expressions

    def expr(self) -> Expr:
        return expression(self.sum())

    def sum(self) -> Value:
        first = self._product()
        if not self.is_op("+", "-", "pm", "mp") or first == v.REALS or not isinstance(first, _ADDED):
            return first
        terms = [expression(first)]
        while sign := self.take_op("+", "-", "pm", "mp"):
            term = expression(self._product())
            terms.append(v.negate(term) if self.factor(sign) < 0 else term)
        return v.add(*terms)

    def factor(self, sign: str) -> int:
        if sign in ("pm", "mp"):
            self.saw_sign = True
            return self.sign if sign == "pm" else -self.sign
        return -1 if sign == "-" else 1

    def _product(self) -> Value:
        value = self._unary()
        while True:
            operator = self.take_op("*", "/", "mod")
            if operator is None and not self._starts_factor():
                return value
            left = expression(value)
            right = expression(self._unary() if operator else self._postfix())
            if operator == "/":
                self._note_division(left, right)
                value = v.divide(left, right)
            elif operator == "mod":
                self.deeper()  # not taken back: each nests the one before
                value = modulo(left, right)
            else:
                value = v.multiply(left, right)

    def _note_division(self, top: Expr, bottom: Expr) -> None:
        """Remembers a fraction of integers that is not in lowest terms."""
        if isinstance(top, v.Num) and isinstance(bottom, v.Num):
            folded = bottom.value and (top.value / bottom.value).denominator
            self.unreduced |= folded != bottom.value or bottom.value == 1

    def _starts_factor(self) -> bool:
        """Whether a factor follows without a sign. A number after a number is none: `5 6` is no product."""
        kind, text = self.token.kind, self.token.text
        if kind == "word":  # a longer word after an amount is its unit
            return len(text) == 1 and unit_name(text) is None
        if kind == "op" and text == "|":
            return not self._bars
        if kind == "open":
            return text != "\\{" and not self.next_is("mod")
        if kind == "num":
            previous = self.tokens[self.at - 1]
            return previous.kind in ("close", "name") or (previous.kind == "op" and previous.text in ("!", "'", "circ"))
        if kind == "cmd" and text in ("choose", "pmod"):
            return False
        if kind == "cmd" and text == "frac" and self.tokens[self.at + 2].kind == "word":
            return False  # a unit such as m/s
        return kind in ("name", "func", "cmd") or (kind == "env" and text.startswith("begin"))

    def _unary(self) -> Value:
        sign = self.take_op("+", "-", "pm", "mp")
        if sign is None:
            return self._postfix()
        self.deeper()
        value = self._unary()
        self.depth -= 1
        if self.factor(sign) > 0:
            return value
        return v.negate(expression(value))

    def _postfix(self) -> Value:
        value = self._primary()
        for _ in range(MAX_DEPTH):
            if self.take_op("^"):
                value = self._raised(value)
            elif self.is_op("_"):
                value = self._subscripted(value)
            elif self.take_op("!"):
                twice = bool(self.take_op("!"))
                value = factorial(expression(value), double=twice)
            elif self.take_op("deg", "circ"):
                value = self._in_degrees(value)
            elif self.take_op("'"):
                value = v.Name(value.name + "'") if isinstance(value, v.Name) else bad("a prime")
            elif self.is_op("%") and self._percent_goes_on():
                self.at += 1
                value = v.divide(expression(value), v.integer(100))
            else:
                return value
        raise Unreadable(f"more than {MAX_DEPTH} marks on one value")

    def _percent_goes_on(self) -> bool:
        following = self.tokens[self.at + 1]
        return following.kind == "op" and following.text in ("+", "-", "*", "/")

    def _in_degrees(self, value: Value) -> Value:
        if self._in_function:
            return v.multiply(expression(value), _DEGREE)
        self.degrees = True
        return value

    def _raised(self, base: Value) -> Value:
        if self.take_op("circ", "deg"):
            return self._in_degrees(base)
        if self.take_op("'"):
            return v.Name(base.name + "'") if isinstance(base, v.Name) else bad("a prime")
        if self.token.kind == "open" and self.token.text == "{":
            inner = self.tokens[self.at + 1]
            closes = self.tokens[self.at + 2].text == "}" if self.at + 2 < len(self.tokens) else False
            if closes and inner.kind == "op" and inner.text in ("circ", "deg", "'"):
                self.at += 3
                return self._in_degrees(base) if inner.text != "'" else bad("a prime")
            if closes and inner.kind in ("word", "name") and inner.text in ("th", "st", "nd", "rd", "T"):
                self.at += 3
                return base if inner.text != "T" else transposed(base)
        if self.token.kind == "word" and self.token.text in ("th", "st", "nd", "rd"):
            self.at += 1
            return base
        return v.power(expression(base), self._exponent())

    def _exponent(self) -> Expr:
        """What follows ^: a group, or one signed primary. `2^10` is read as plain text means it."""
        self.deeper()
        sign = self.take_op("+", "-")
        value = expression(self._primary())
        if self.take_op("^"):
            value = v.power(value, self._exponent())
        self.depth -= 1
        return v.negate(value) if sign == "-" else value

    def _subscripted(self, value: Value) -> Value:
        self.at += 1
        braced = self.token.kind == "open" and self.token.text == "{"
        label: list[str] = []
        if braced:
            self.at += 1
            while not (self.token.kind == "close" and self.token.text == "}"):
                if self.token.kind in ("end", "open", "close"):
                    raise Unreadable("a subscript that is no label")
                label.append(self.token.text)
                self.at += 1
            self.at += 1
        elif self.token.kind in ("num", "name", "word"):
            label.append(self.token.text)
            self.at += 1
        text = "".join(label)
        if isinstance(value, v.Name):
            return v.Name(f"{value.name}_{text}")
        digits = str(value.value) if isinstance(value, v.Num) and value.places is None else ""
        return based(digits, text)

    def _primary(self) -> Value:
        token = self.token
        self.at += 1
        if token.kind == "num":
            assert token.number is not None
            return self._mixed(token.number, token.text)
        if token.kind == "name":
            return self._name(token)
        if token.kind == "func":
            return self._function(token.text)
        if token.kind == "cmd":
            return self._command(token.text)
        if token.kind == "open":
            return self._bracketed(token.text)
        if token.kind == "op" and token.text == "|":
            return self._absolute()
        if token.kind == "env" and token.text.startswith("begin"):
            self.deeper()
            matrix = matrix_from(self, token.text.removeprefix("begin "))
            self.depth -= 1
            return matrix
        if token.kind == "word" and token.text.lower() not in CONNECTIVES and unit_name(token.text) is None:
            return v.Name(token.text)
        if token.kind == "word" and token.upright and len(token.text) == 1:
            return v.Name(token.text)
        raise Unreadable(f"{token.text!r} was not expected")

    def _name(self, token: Token) -> Value:
        if token.text == "nan":
            raise v.Undefined("nan")
        if token.text == "empty":
            return v.Collection(())
        if token.text in _UNKNOWN_FUNCTIONS:
            name = token.text
            while self.is_op("'"):
                self.at += 1
                name += "'"
            if self.token.kind == "open" and self.token.text == "(":
                return v.Apply(name, self._arguments())
            return v.Name(name)
        if token.text == "reals":
            return v.REALS
        return v.Name(token.text)

    def _mixed(self, number: v.Num, text: str) -> Value:
        """`3 1/2` and `3\\frac{1}{2}` with a proper fraction are mixed numbers; else the number alone."""
        if not text.isdigit() or (self.at >= 2 and self.tokens[self.at - 2].text == "^"):
            return number
        start = self.at
        parts: list[int] = []
        if self.token.kind == "num" and self.token.text.isdigit() and self.tokens[self.at + 1].text == "/":
            below = self.tokens[self.at + 2]
            if below.kind == "num" and below.text.isdigit():
                parts = [int(self.token.text), int(below.text)]
                self.at += 3
        elif self.token.kind == "cmd" and self.token.text == "frac":
            self.at += 1
            try:
                top, bottom = self._argument(), self._argument()
            except Unreadable:
                top = bottom = v.ONE
            if isinstance(top, v.Num) and isinstance(bottom, v.Num) and top.places is None and bottom.places is None:
                parts = [int(top.value), int(bottom.value)] if top.value.denominator == 1 else []
        if len(parts) == 2 and 0 < parts[0] < parts[1]:
            return v.Num(number.value + v.Fraction(parts[0], parts[1]))
        self.at = start
        return number

    def _argument(self) -> Expr:
        """One argument of a LaTeX command: a group, or a single token, of a number its first digit."""
        self.deeper()
        token = self.token
        if token.kind == "num" and len(token.text) > 1 and token.text.isdigit():
            rest = token.text[1:]
            self.tokens[self.at] = Token("num", rest, v.integer(int(rest)))
            self.depth -= 1
            return v.integer(int(token.text[0]))
        if token.kind == "op" and token.text == "-":
            self.at += 1
            value = v.negate(self._argument())
        else:
            value = expression(self._primary())
        self.depth -= 1
        return value

    def _command(self, name: str) -> Value:
        if name == "frac":
            top, bottom = self._argument(), self._argument()
            self._note_division(top, bottom)
            return v.divide(top, bottom)
        if name == "sqrt":
            return self._root()
        if name == "binom":
            return binomial(self._argument(), self._argument())
        if name in OPERATORS:
            return self._with_bounds(name)
        if name == "triangle":
            return v.Name(f"triangle {expression(self._primary())}")
        if name in ("overline", "bar", "hat", "vec", "tilde", "widehat", "overrightarrow"):
            inner = self._argument()
            label = "".join(sorted(v.names_in(inner))) if name == "overline" else getattr(inner, "name", "")
            return v.Name(f"{name} {label}") if label else bad(f"\\{name}")
        raise Unreadable(f"\\{name} has no meaning here")

    def _with_bounds(self, name: str) -> Value:
        """A sum, product, integral or limit: its variable, bounds and body."""
        self.deeper()
        low: Value | None = None
        high: Expr | None = None
        while self.is_op("^", "_"):
            if self.take_op("_"):
                low = self._bound()
            elif self.take_op("^"):
                high = self._exponent()
        body = self._body()
        self.depth -= 1
        return with_bounds(name, low, high, body)

    def _bound(self) -> Value:
        if self.token.kind != "open" or self.token.text != "{":
            return self._primary()
        self.at += 1
        value = self.clause()
        if self.take_op("to"):
            value = v.Relation((value, self.expr()), ("to",))
        self.expect_close("}")
        return value

    def _body(self) -> Expr:
        return expression(self._product())

    def _root(self) -> Value:
        index: Expr = v.integer(2)
        if self.token.kind == "open" and self.token.text == "[":
            self.at += 1
            index = self.expr()
            self.expect_close("]")
        if self.token.kind == "num":  # \sqrt10 is meant as the root of 10
            radicand = expression(self._primary())
        elif self.token.kind == "open" and self.token.text == "(":
            radicand = self._arguments()[0]
        else:
            radicand = self._argument()
        return v.power(radicand, v.divide(v.ONE, index))

    def _function(self, name: str) -> Value:
        self.deeper()
        self._in_function += 1
        exponent: Expr | None = None
        base: Expr | None = None
        while self.is_op("^", "_"):
            if self.take_op("^"):
                exponent = self._exponent()
            elif self.take_op("_"):
                base = self._argument() if self.token.kind != "num" else expression(self._primary())
        if exponent == v.MINUS_ONE and name in INVERSES:
            name, exponent = INVERSES[name], None
        if self.token.kind == "open" and self.token.text in ("(", "[", "{"):
            arguments = self._arguments()
        else:
            arguments = (self._tight_product(),)
        self._in_function -= 1
        self.depth -= 1
        value = apply(name, arguments, base)
        return v.power(value, exponent) if exponent is not None else value

    def _tight_product(self) -> Expr:
        """The argument of a function written without parentheses: `\\sin 2x`, `\\ln 5`."""
        factors = [expression(self._unary())]
        while self.token.kind in ("num", "name", "cmd") and self._starts_factor():
            factors.append(expression(self._postfix()))
        return v.multiply(*factors)

    def _arguments(self) -> tuple[Expr, ...]:
        opening = self.token.text
        self.at += 1
        self.deeper()
        arguments = [self.expr()]
        while self.take_op(",", ";"):
            arguments.append(self.expr())
        self.expect_close(*({"(": ")", "[": "]", "{": "}"}[opening],))
        self.depth -= 1
        return tuple(arguments)

    def _absolute(self) -> Value:
        self.deeper()
        self._bars += 1
        inner = self.expr()
        self._bars -= 1
        if not self.take_op("|"):
            raise Unreadable("a bar that does not close")
        self.depth -= 1
        return apply("abs", (inner,), None)

    def _bracketed(self, opening: str) -> Value:
        self.deeper()
        closers = _CLOSED_BY[opening]
        closing = (closers,) if len(closers) != 2 or closers.startswith("\\") else tuple(closers)
        if self.token.kind == "close" and self.token.text in closing:
            self.at += 1
            self.depth -= 1
            return v.Collection(()) if opening == "\\{" else bad("an empty bracket")
        if opening == "\\{" and self.token.kind == "env" and self.token.text.startswith("begin "):
            self.at += 1  # \left\{ \begin{array} ... \right. is a system
            system = system_from(self, self.tokens[self.at - 1].text.removeprefix("begin "))
            self.depth -= 1
            return system
        described = opening == "\\{" and self._skip_to_condition()
        value = self.list()
        if described:  # {x | x > 3}: what holds of x is the set
            self.expect_close(*closing)
            self.depth -= 1
            return value if sets_of_one(value) else bad("a set without a condition")
        if opening in ("{", "(") and self.token.kind == "cmd" and self.token.text == "choose":
            self.at += 1
            value = binomial(expression(value), self.expr())
        close = self.expect_close(*closing)
        self.depth -= 1
        if opening in ("lfloor", "lceil"):
            return apply("floor" if opening == "lfloor" else "ceil", (expression(value),), None)
        items = value.items if isinstance(value, v.Listing) else (value,)
        if opening == "\\{":
            return v.Collection(items)
        if opening == "{":
            return value
        if opening == "langle":
            return v.Bracket("(", items, ")")
        if len(items) == 1 and (opening, close) in (("(", ")"), ("[", "]")):
            return items[0]
        if isinstance(value, v.Listing) and value.choice:
            raise Unreadable("a choice within brackets")
        return v.Bracket(opening, items, close)

    def _skip_to_condition(self) -> bool:
        """Past `x |`, `x :` or `x in R |` at the head of a set, if one stands there."""
        ahead = [token.text for token in self.tokens[self.at : self.at + 4]]
        if self.token.kind == "name" and len(ahead) == 4:
            if ahead[1] in ("|", ":"):
                self.at += 2
                return True
            if ahead[1] == "in" and ahead[2] == "reals" and ahead[3] in ("|", ":", ","):
                self.at += 4
                return True
        return False


def sets_of_one(value: Value) -> bool:
    """Whether a condition is one that a set can be read from."""
    return isinstance(value, v.Relation) or (isinstance(value, v.Listing) and isinstance(value.items[0], v.Relation))
