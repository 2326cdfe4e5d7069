"""The lower half of the grammar: from a sum down to a number. Depth is bounded; only values are built.

sum       product ((+|-|pm) product)*
product   unary ((*|/|nothing) unary)*
unary     (+|-|pm) unary | postfix
postfix   primary (^ exponent | _ subscript | ! | % | degrees)*
"""

from __future__ import annotations

from ansatz_verify import functions
from ansatz_verify import values as v
from ansatz_verify.commands import Commands
from ansatz_verify.stream import FUNCTION_LETTERS, MAX_DEPTH, bad, expression
from ansatz_verify.units import read_unit
from ansatz_verify.values import Expr, UnreadableAnswer, Value
from ansatz_verify.words import CONNECTIVES, GREEK, unit_name

_ADDED = (*v.EXPRESSIONS, v.Quantity)
_DECORATIONS = ("bar", "hat", "vec", "tilde", "dot", "ddot")
_MARKS = frozenset({"^", "_", "!", "deg", "circ", "'", "(", "[", "%"})
"""The tokens that can follow a value as a part of it."""
_NAMED: dict[str, Value] = {"empty": v.Collection(()), "reals": v.REALS}
_EXPECTATIONS = (v.Name("E"), v.Name("blackboard E"))
_DEGREE = v.divide(v.PI, v.integer(180))


class Expressions(Commands):
    """The lower half of the parser; `list` and `clause`, the upper half, belong to `grammar.Parser`."""

    def sum(self) -> Value:
        first = self.product()
        if not self.is_op("+", "-", "pm", "mp") or first == v.REALS or not isinstance(first, _ADDED):
            return first
        terms = [expression(first)]
        while sign := self.take_op("+", "-", "pm", "mp"):
            term = expression(self.product())
            terms.append(v.negate(term) if self.factor(sign) < 0 else term)
        return v.add(*terms)

    def factor(self, sign: str) -> int:
        if sign in ("pm", "mp"):
            self.saw_sign = True
            self.num_signs += 1
            return (-1) ** ((self.turned >> (self.num_signs - 1) & 1) + (sign == "mp"))
        return -1 if sign == "-" else 1

    def product(self) -> Value:
        """Read `value` and the factors after it. They are multiplied once, because a policy can write thousands."""
        value, factors = self.unary(), list[Expr]()
        has_names = bool(v.names_in(value))
        while self.token.kind not in ("end", "close"):
            can_have_unit = self.depth == 0 and not self.letters_apart and not has_names
            if can_have_unit and read_unit(self.tokens, self.at, letters=True)[1] > self.at:
                break  # as in `5 m/s`
            operator = self.take_op("*", "/")
            if operator is None and not self.starts_factor():
                break
            left = expression(value)
            bracket = operator is None and self.token.text == "("
            following = self.unary() if operator else self.postfix()
            if bracket and isinstance(following, v.Relation):
                self.conditions.append(following)
                break
            right = expression(following)
            if operator == "/" and not isinstance(right, v.Num) and not v.is_infinity(right):
                operator, right = "*", v.power(right, v.MINUS_ONE)  # as `divide` does
            if operator != "/" and right != v.ZERO:
                factors.append(right)
                has_names = has_names or bool(v.names_in(right))
                continue
            left = v.multiply(left, *factors)
            value, factors = self.quotient(left, right) if operator == "/" else v.multiply(left, right), []
            has_names = bool(v.names_in(value))
        return v.multiply(expression(value), *factors) if factors else value

    def starts_factor(self) -> bool:
        """Return whether a factor follows without a sign. `5 6` is not a product, but `(5) 6` is one."""
        kind, text = self.token.kind, self.token.text
        if kind == "word":  # a longer word after an amount is a unit
            return len(text) == 1 and text.isascii() and unit_name(text) is None
        if kind == "op" and text == "|":
            return not self.bars
        if kind == "open":
            return text != "\\{"
        if kind == "num":
            previous = self.tokens[self.at - 1]
            return previous.kind in ("close", "name") or (previous.kind == "op" and previous.text in ("!", "'", "circ"))
        if kind == "cmd" and text == "frac" and self.tokens[self.at + 2].kind == "word":
            return False  # a unit such as m/s
        return kind in ("name", "func", "cmd") or (kind == "env" and text.startswith("begin"))

    def unary(self) -> Value:
        sign = self.take_op("+", "-", "pm", "mp")
        if sign is None:
            return self.postfix()
        self.deeper()
        value = self.unary()
        self.depth -= 1
        if self.factor(sign) > 0:
            return value
        return value.negated() if isinstance(value, v.Based) else v.negate(expression(value))

    def postfix(self) -> Value:
        value = self.primary()
        for _ in range(MAX_DEPTH):
            token = self.tokens[self.at]
            if token.text not in _MARKS or (token.kind != "op" and token.text not in ("(", "[")):
                return value
            if self.take_op("^"):
                value = self._inverse(value) or self._raised(value)
            elif self.is_op("_"):
                value = self._subscripted(value)
            elif self.take_op("!"):
                twice = bool(self.take_op("!"))
                value = functions.factorial(expression(value), double=twice)
            elif self.take_op("deg", "circ"):
                value = self._in_degrees(value)
            elif self.take_op("'"):
                value = v.Name(value.name + "'") if isinstance(value, v.Name) else bad("a prime")
            elif (call := self._call(value)) is not None:
                value = call
            else:
                return value
        raise UnreadableAnswer(f"more than {MAX_DEPTH} marks on one value")

    def _call(self, value: Value) -> Value | None:
        if self.token.text == "(" and isinstance(value, v.Name) and self._is_call(value.name):
            return _applied(value.name, self.arguments())
        return v.Apply("E", self.arguments()) if self.token.text == "[" and value in _EXPECTATIONS else None

    def _is_call(self, name: str) -> bool:
        """Return whether the bracket after a name holds arguments.

        It always does for f, g and the like, else if they are numbers and names.
        """
        symbol = name.split("_")[0].rstrip("'")
        if symbol in FUNCTION_LETTERS:
            return True
        decoration, _, letter = symbol.rpartition(" ")
        if (len(letter) > 1 and letter not in GREEK) or (decoration and decoration not in _DECORATIONS):
            return False
        at = self._after_argument(self.at + 1)
        if at is not None and symbol in v.CONSTANTS and self.tokens[at - 1].text not in ("0", "t"):
            return False
        while at is not None and self.tokens[at].text == ",":
            at = self._after_argument(at + 1)
        return not (at is None or self.tokens[at].text != ")")

    def _after_argument(self, at: int) -> int | None:
        """Return the place after a single number or name at `at`, None if there is something else."""
        at += self.tokens[at].kind == "op" and self.tokens[at].text in ("+", "-")
        return at + 1 if self.tokens[at].kind in ("num", "name") else None

    def _in_degrees(self, value: Value) -> Value:
        if isinstance(value, v.Name | v.Apply) and self.token.kind in ("name", "func"):
            return bad("a composition")
        if self.in_function:
            return v.multiply(expression(value), _DEGREE)
        following, after = self.token, self.tokens[self.at + 1]
        self.degrees = "deg"
        if following.kind in ("name", "word") and following.text in ("C", "F") and after.text not in ("^", "_", "("):
            self.degrees = following.text
            self.at += 1
        return value

    def _raised(self, base: Value) -> Value:
        if self.take_op("circ", "deg"):
            return self._in_degrees(base)
        if self.token.text == "{" and self.tokens[self.at + 2].text == "}":
            inner = self.tokens[self.at + 1]
            if inner.kind == "op" and inner.text in ("circ", "deg"):
                self.at += 3
                return self._in_degrees(base)
        if isinstance(base, v.Name) and base.name not in v.CONSTANTS:
            order = "".join(token.text for token in self.tokens[self.at : self.at + 5])
            if order[:2] + order[3:] == "{()}" and order[2].isdigit():  # the derivative y^{(3)}
                self.at += 5
                return v.Name(base.name + "'" * int(order[2]))
        if isinstance(base, v.Name) and base.name.startswith(("reals", "blackboard")):  # R^+, N^*
            braced = self.token.text == "{"
            sign = self.tokens[self.at + braced].text
            if sign in ("+", "-", "*"):
                self.at += 1 + 2 * braced
                return v.Name(f"{base.name}{sign}")
        return v.power(expression(base), self.exponent())

    def _inverse(self, base: Value) -> Value | None:
        """Read `f^{-1}(x)`, for the letters of functions only; None for other powers."""
        if not isinstance(base, v.Name):
            return None
        ahead = [token.text for token in self.tokens[self.at : self.at + 5]]
        size = 4 if ahead == ["{", "-", "1", "}", "("] else 2 if ahead[:3] == ["-", "1", "("] else 0
        if not size or base.name not in FUNCTION_LETTERS | {"h", "H"}:
            return None
        self.at += size
        return v.Apply(f"{base.name}^-1", self.arguments())

    def exponent(self) -> Expr:
        """Return the exponent after ^: a group or one signed primary. `2^10` has the exponent 10, as in plain text."""
        self.deeper()
        sign = self.take_op("+", "-")
        value = expression(self.primary())
        if self.take_op("^"):
            value = v.power(value, self.exponent())
        self.depth -= 1
        return v.negate(value) if sign == "-" else value

    def _subscripted(self, value: Value) -> Value:
        place = self.at
        self.at += 1
        braced = self.token.kind == "open" and self.token.text == "{"
        label: list[str] = []
        if braced:
            self.at += 1
            while not (self.token.kind == "close" and self.token.text == "}"):
                if self.token.kind in ("end", "open", "close"):
                    raise UnreadableAnswer("a subscript is not a plain label")
                label.append(self.token.text)
                self.at += 1
            self.at += 1
        elif self.token.kind in ("num", "name", "word"):
            label.append(self.token.text)
            self.at += 1
        text = "".join(label)
        if isinstance(value, v.Name):
            return v.Name(f"{value.name}_{text}")
        if isinstance(value, v.Apply):  # f(x)_{max}
            return v.Name(f"{value.function}_{text}")
        written = self.tokens[place - 1]
        digits = written.text if isinstance(value, v.Num) and written.kind == "num" else ""
        return functions.based(digits, text)

    def primary(self) -> Value:
        token = self.token
        self.at += 1
        if token.kind == "num":
            assert token.number is not None
            return self._mixed(token.number, token.text)
        if token.kind == "name":
            if token.text == "nan":
                raise v.Undefined("nan")
            return _NAMED.get(token.text) or v.Name(token.text)
        if token.kind in ("func", "cmd"):
            return (self.function if token.kind == "func" else self.command)(token.text)
        if token.kind == "open":
            return self.bracketed(token.text)
        if token.kind == "op" and token.text == "|":
            return self.absolute()
        if token.kind == "env" and token.text.startswith("begin"):
            return self.environment(token.text.removeprefix("begin "))
        if token.kind == "word":
            lettered = len(token.text) == 1 if token.upright else token.text.isupper()
            if lettered or (token.text.lower() not in CONNECTIVES and unit_name(token.text) is None):
                return v.Name(token.text)
        raise UnreadableAnswer(f"unexpected {token.shown}")

    def _mixed(self, number: v.Num, text: str) -> Value:
        """Return a mixed number such as `3 1/2` if a proper fraction follows, else the number itself."""
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
                top, bottom = self.argument(), self.argument()
            except UnreadableAnswer:
                top = bottom = v.ONE
            if isinstance(top, v.Num) and isinstance(bottom, v.Num) and top.places is None and bottom.places is None:
                parts = [int(top.value), int(bottom.value)] if top.value.denominator == 1 else []
        if len(parts) == 2 and 0 < parts[0] < parts[1]:
            return v.Num(number.value + v.Fraction(parts[0], parts[1]))
        self.at = start
        return number


def _applied(name: str, arguments: tuple[Expr, ...]) -> Expr:
    """Return f(x), or the binomial coefficient C(n, k)."""
    if name == "C" and len(arguments) == 2 and all(isinstance(argument, v.Num) for argument in arguments):
        return functions.binomial(*arguments)
    return v.Apply(name, arguments)
