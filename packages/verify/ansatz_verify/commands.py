"""Commands, functions, bars and brackets: everything in the grammar that has arguments or encloses something."""

from __future__ import annotations

from abc import ABC

from ansatz_verify import values as v
from ansatz_verify.functions import OPERATORS, apply, binomial, with_bounds
from ansatz_verify.lexer import Token
from ansatz_verify.stream import Grammar, bad, expression
from ansatz_verify.values import Expr, UnreadableAnswer, Value
from ansatz_verify.words import INVERSES, NOTATION

_CLOSED_BY: dict[str, list[str]] = NOTATION["closed_by"]
_MATRICES = frozenset(
    {"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array", "psmallmatrix", "bsmallmatrix"}
)


class Commands(Grammar, ABC):
    """The parser's rules for everything that has arguments or encloses something."""

    def argument(self) -> Expr:
        """Return one argument of a LaTeX command: a group or a single token; of a number, only its first digit."""
        self.deeper()
        token = self.token
        if token.kind == "num" and len(token.text) > 1 and token.text.isdigit():
            rest = token.text[1:]
            self.tokens[self.at] = Token("num", rest, v.integer(int(rest)))
            self.depth -= 1
            return v.integer(int(token.text[0]))
        if token.kind == "op" and token.text == "-":
            self.at += 1
            value = v.negate(self.argument())
        else:
            value = expression(self.primary())
        self.depth -= 1
        return value

    def command(self, name: str) -> Value:
        """Return a LaTeX command with its arguments; its name was just taken."""
        if name == "frac":
            return self.quotient(self.argument(), self.argument())
        if name == "sqrt":
            return self._root()
        if name == "binom":
            return binomial(self.argument(), self.argument())
        if name in OPERATORS:
            return self._with_bounds(name)
        if name == "triangle":
            return v.Name(f"triangle {expression(self.primary())}")
        if name in ("overline", "bar", "hat", "vec", "tilde", "widehat", "overrightarrow", "dot", "ddot"):
            inner = self.argument()
            label = "".join(sorted(v.names_in(inner))) if name == "overline" else getattr(inner, "name", "")
            return v.Name(f"{name} {label}") if label else bad(f"\\{name}")
        raise UnreadableAnswer(f"\\{name} is not supported here")

    def _with_bounds(self, name: str) -> Value:
        """Return a sum, product or integral: its variable, bounds and body."""
        self.deeper()
        low: Value | None = None
        high: Expr | None = None
        while self.is_op("^", "_"):
            if self.take_op("_"):
                low = self._bound()
            elif self.take_op("^"):
                high = self.exponent()
        body = expression(self.product())
        self.depth -= 1
        return with_bounds(name, low, high, body)

    def _bound(self) -> Value:
        if self.token.kind != "open" or self.token.text != "{":
            return self.primary()
        self.at += 1
        value = self.clause()
        self.expect_close("}")
        return value

    def _root(self) -> Value:
        index: Expr = v.integer(2)
        if self.token.kind == "open" and self.token.text == "[":
            self.at += 1
            index = self.expr()
            self.expect_close("]")
        if self.token.kind == "num":  # \sqrt10 means the root of 10
            radicand = expression(self.primary())
        elif self.token.kind == "open" and self.token.text == "(":
            radicand = self.arguments()[0]
        else:
            radicand = self.argument()
        return v.power(radicand, v.divide(v.ONE, index))

    def function(self, name: str) -> Value:
        """Return a known function with its exponent, base and arguments; its name was just taken."""
        self.deeper()
        self.in_function += 1
        exponent: Expr | None = None
        base: Expr | None = None
        while self.is_op("^", "_"):
            if self.take_op("^"):
                exponent = self.exponent()
            elif self.take_op("_"):
                base = self.argument() if self.token.kind != "num" else expression(self.primary())
        if exponent == v.MINUS_ONE and name in INVERSES:
            name, exponent = INVERSES[name], None
        if self.token.kind == "open" and self.token.text in ("(", "[", "{"):
            arguments = self.arguments()
        else:
            arguments = (self._tight_product(),)
        self.in_function -= 1
        self.depth -= 1
        value = apply(name, arguments, base)
        return v.power(value, exponent) if exponent is not None else value

    def _tight_product(self) -> Expr:
        """Return the argument of a function without parentheses, as in `\\sin 2x` and `\\ln 5`."""
        factors = [expression(self.unary())]
        while self.token.kind in ("num", "name", "cmd") and self.starts_factor():
            factors.append(expression(self.postfix()))
        return v.multiply(*factors)

    def arguments(self) -> tuple[Expr, ...]:
        """Return the bracketed arguments of a function."""
        opening = self.token.text
        self.at += 1
        self.deeper()
        arguments = [self.expr()]
        while self.take_op(",", ";"):
            arguments.append(self.expr())
        self.expect_close(_CLOSED_BY[opening][0])
        self.depth -= 1
        return tuple(arguments)

    def absolute(self) -> Value:
        """Return an absolute value; the first bar was just taken."""
        self.deeper()
        self.bars += 1
        inner = self.expr()
        self.bars -= 1
        if not self.take_op("|"):
            raise UnreadableAnswer("a bar is not closed")
        self.depth -= 1
        return apply("abs", (inner,), None)

    def bracketed(self, opening: str) -> Value:
        """Return the contents of a bracket, through its close; the opening was just taken."""
        self.deeper()
        closing = _CLOSED_BY[opening]
        if self.token.kind == "close" and self.token.text in closing:
            self.at += 1
            self.depth -= 1
            return v.Collection(()) if opening == "\\{" else bad("an empty bracket")
        described = opening == "\\{" and self._skip_to_condition()
        outer_depth = self.list_depth
        if opening == "\\{":
            self.list_depth = self.depth
        value = self.list()
        self.list_depth = outer_depth
        if described:  # {x | x > 3}: the condition on x is the set
            self.expect_close(*closing)
            self.depth -= 1
            return value if is_condition(value) else bad("a set without a condition")
        close = self.expect_close(*closing)
        self.depth -= 1
        if opening in ("lfloor", "lceil"):
            return apply("floor" if opening == "lfloor" else "ceil", (expression(value),), None)
        return self._enclosed(value, opening, close)

    def _enclosed(self, value: Value, opening: str, close: str) -> Value:
        """Return the meaning of a value between two brackets."""
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
            raise UnreadableAnswer("a choice is inside brackets")
        return v.Bracket(opening, items, close)

    def environment(self, name: str) -> v.Matrix:
        """Return the matrix whose `\\begin` was just taken, through its `\\end`. Empty rows are dropped."""
        if name not in _MATRICES:
            raise UnreadableAnswer(f"the environment {name} is not supported")
        self.deeper()
        rows: list[list[Value]] = [[]]
        while self.token.kind != "env":
            if self.take_op("\\\\"):
                rows.append([])
            elif not self.take_op("&"):
                rows[-1].append(self.expr())
        if self.token.text != f"end {name}":
            raise UnreadableAnswer(f"the environment {name} is not closed")
        self.at += 1
        self.depth -= 1
        rows = [row for row in rows if row]
        if not rows or len({len(row) for row in rows}) != 1:
            raise UnreadableAnswer("the rows of a matrix differ in length")
        return v.Matrix(tuple(tuple(row) for row in rows))

    def _skip_to_condition(self) -> bool:
        """Skip `x |`, `x :` or `x in R |` at the head of a set. Return whether it was there."""
        ahead = [token.text for token in self.tokens[self.at : self.at + 4]]
        if self.token.kind == "name" and len(ahead) == 4:
            if ahead[1] in ("|", ":"):
                self.at += 2
                return True
            if ahead[1] == "in" and ahead[2] == "reals" and ahead[3] in ("|", ":", ","):
                self.at += 4
                return True
        return False


def is_condition(value: Value) -> bool:
    """Return whether a value describes a set: a relation, or several of them."""
    return isinstance(value, v.Relation) or (isinstance(value, v.Listing) and isinstance(value.items[0], v.Relation))
