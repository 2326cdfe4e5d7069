"""The lower half of the grammar: from a sum down to a number. Depth is bounded; only values are built.

sum       product ((+|-|pm) product)*
product   unary ((*|/|nothing) unary)*
unary     (+|-|pm) unary | postfix
postfix   primary (^ exponent | _ subscript | ! | % | degrees)*
"""

from __future__ import annotations

from fractions import Fraction

from ansatz.rewards.math_answer import functions
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.commands import Commands
from ansatz.rewards.math_answer.environments import matrix_from
from ansatz.rewards.math_answer.lexer import COMPOSED, Token
from ansatz.rewards.math_answer.stream import MAX_DEPTH, bad, expression
from ansatz.rewards.math_answer.units import letter_unit
from ansatz.rewards.math_answer.values import Expr, UnreadableAnswer, Value
from ansatz.rewards.math_answer.words import CONNECTIVES, GREEK, unit_name

_ADDED = (*v.EXPRESSIONS, v.Quantity)
_SCALARS = frozenset({"t", "s", "r", "k", "c", "a", "b", "m", "n", "lambda", "mu", "alpha", "beta"})
"""Names that multiply the point after them, as in `t(1, 2)`, where others take two arguments, as in `u(x, t)`."""

_DECORATIONS = ("bar", "hat", "vec", "tilde", "dot", "ddot")
_MARKS = frozenset({"^", "_", "!", "deg", "circ", "'", "(", "%"})
"""What can follow a value as a part of it."""
_DEGREE = v.divide(v.PI, v.integer(180))


class Expressions(Commands):
    """The lower half of the parser; `list` and `clause`, the upper half, belong to `grammar.Parser`."""

    def sum(self) -> Value:
        first = self.product()
        if not self.is_op("+", "-", "pm", "mp") or first == v.REALS:
            return first
        if functions.is_vector(first):
            while sign := self.take_op("+", "-", "pm", "mp"):
                first = functions.vector_sum(first, _times(self.product(), self.factor(sign)))
            return first
        if not isinstance(first, _ADDED):
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
        value = self.unary()
        while True:
            if self.token.kind in ("end", "close"):
                return value
            if self.depth == 0 and not self.letters_apart and self._unit_follows(value):
                return value
            operator = self.take_op("*", "/") if self.congruent else self.take_op("*", "/", "mod")
            if operator is None and not self.starts_factor():
                return value
            if operator in ("*", "/") and functions.is_vector(value):
                factor = expression(self.unary())
                value = functions.scaled(value, factor if operator == "*" else v.divide(v.ONE, factor))
                continue
            left = expression(value)
            bracket = operator is None and self.token.text == "("
            following = self.unary() if operator else self.postfix()
            if isinstance(following, v.VECTORS) and operator in ("*", None) and functions.is_vector(following):
                value = functions.scaled(following, left)
                continue
            right = expression(following)
            if bracket and right == v.ZERO and v.names_in(left):
                raise UnreadableAnswer("a name before (0) could be a function")
            if bracket and isinstance(left, v.Name):
                self.multiplied.add(left.name)
            if operator == "/":
                self.note_division(left, right)
                value = v.divide(left, right)
            elif operator == "mod":
                self.deeper()  # never decreased: each mod contains the one before
                value = functions.modulo(left, right)
            else:
                value = v.multiply(left, right)

    def _unit_follows(self, value: Value) -> bool:
        """Return whether the letters after a number are its unit, as in `5 m/s`."""
        token = self.token
        if token.kind not in ("name", "cmd", "word") and not (token.kind == "op" and token.text == "/"):
            return False
        return not v.names_in(value) and letter_unit(self.tokens, self.at)[1] > self.at

    def starts_factor(self) -> bool:
        """Return whether a factor follows without a sign. `5 6` is not a product, but `2^3 3^2` is one."""
        kind, text = self.token.kind, self.token.text
        if kind == "word":  # a longer word after an amount is a unit
            return len(text) == 1 and unit_name(text) is None
        if kind == "op" and text == "|":
            return not self.bars
        if kind == "open":
            return text != "\\{" and not self.next_is("mod")
        if kind == "num":
            previous = self.tokens[self.at - 1]
            powers = self._powers_before()
            if powers and (powers > 1 or self.tokens[self.at + 1].text == "^"):
                return True
            return previous.kind in ("close", "name") or (previous.kind == "op" and previous.text in ("!", "'", "circ"))
        if kind == "cmd" and text in ("choose", "pmod"):
            return False
        if kind == "cmd" and text == "frac" and self.tokens[self.at + 2].kind == "word":
            return False  # a unit such as m/s
        return kind in ("name", "func", "cmd") or (kind == "env" and text.startswith("begin"))

    def _powers_before(self) -> int:
        """Return how many powers of numbers, such as `2^3` and `2^{10}`, directly precede the next token.

        Stops at 2.
        """
        end, powers = self.at, 0
        while True:
            before = self.tokens[max(0, end - 5) : end]
            shape = "".join("1" if token.kind == "num" else token.text[:1] for token in before)
            size = 5 if shape == "1^{1}" else 3 if shape.endswith("1^1") else 0
            if not size or powers > 1:
                return powers
            powers, end = powers + 1, end - size

    def unary(self) -> Value:
        sign = self.take_op("+", "-", "pm", "mp")
        if sign is None:
            return self.postfix()
        self.deeper()
        value = self.unary()
        self.depth -= 1
        if self.factor(sign) > 0:
            return value
        if isinstance(value, v.Based):
            return value.negated()
        return functions.scaled(value, v.MINUS_ONE) if functions.is_vector(value) else v.negate(expression(value))

    def postfix(self) -> Value:
        value = self.primary()
        for _ in range(MAX_DEPTH):
            token = self.tokens[self.at]
            if token.text not in _MARKS or (token.kind != "op" and token.text != "("):
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
                value = _primed(value)
            elif self.token.text == "(" and isinstance(value, v.Name) and self._is_call(value.name):
                value = _composed(value.name, self._call_arguments())
            elif self.is_op("%") and self._percent_goes_on():
                self.at += 1
                value = v.divide(expression(value), v.integer(100))
            else:
                return value
        raise UnreadableAnswer(f"more than {MAX_DEPTH} marks on one value")

    def _is_call(self, name: str) -> bool:
        """Return whether the bracket after a name holds arguments: always for f, g and the like, else one
        number or name.
        """
        symbol = name.split("_")[0].rstrip("'")
        if symbol in self.functions or COMPOSED in symbol:
            return True
        decoration, _, letter = symbol.rpartition(" ")
        if (len(letter) > 1 and letter not in GREEK) or (decoration and decoration not in _DECORATIONS):
            return False
        at = self._after_argument(self.at + 1)
        if at is not None and symbol in v.CONSTANTS and self.tokens[at - 1].text not in ("0", "t"):
            return False
        while at is not None and self.tokens[at].text == "," and symbol not in _SCALARS:
            at = self._after_argument(at + 1)
        if at is None or self.tokens[at].text != ")":
            return False
        self.called.add(symbol)
        return True

    def _after_argument(self, at: int) -> int | None:
        """Return the place after a single number or name at `at`, None if there is something else."""
        at += self.tokens[at].kind == "op" and self.tokens[at].text in ("+", "-")
        argument = self.tokens[at]
        if argument.kind not in ("num", "name"):
            return None
        at += 1
        if self.tokens[at].text == "_" or (argument.text == "0" and self.tokens[at].text == "^"):  # x(t_0), x(0^+)
            at += 4 if self.tokens[at + 1].text == "{" else 2
        return at if at < len(self.tokens) else None

    def _call_arguments(self) -> tuple[Expr, ...]:
        """Return the arguments of a function of the problem. `0^+` and `0^-` are names: limits at zero."""
        ahead = "".join(token.text for token in self.tokens[self.at : self.at + 6]).replace("{", "").replace("}", "")
        if ahead[:5] not in ("(0^+)", "(0^-)"):
            return self.arguments()
        while self.token.kind != "close" or self.token.text == "}":
            self.at += 1
        self.at += 1
        return (v.Name(ahead[1:4]),)

    def _percent_goes_on(self) -> bool:
        following = self.tokens[self.at + 1]
        return following.kind == "op" and following.text in ("+", "-", "*", "/")

    def _in_degrees(self, value: Value) -> Value:
        for sixties, marks in ((60, 1), (3600, 2)):  # 37^\circ 30' 15''
            minutes, place = self.token.number, self.at + 1 + marks
            if minutes is not None and all(token.text == "'" for token in self.tokens[self.at + 1 : place]):
                value = v.add(expression(value), v.multiply(minutes, v.Num(Fraction(1, sixties))))
                self.at = place
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
        if self.token.kind == "open" and self.token.text == "{":
            inner = self.tokens[self.at + 1]
            closes = self.tokens[self.at + 2].text == "}" if self.at + 2 < len(self.tokens) else False
            if closes and inner.kind == "op" and inner.text in ("circ", "deg"):
                self.at += 3
                return self._in_degrees(base)
            if closes and inner.kind in ("word", "name") and inner.text in ("th", "st", "nd", "rd", "T"):
                self.at += 3
                return base if inner.text != "T" else functions.transposed(base)
        if self.token.kind == "word" and self.token.text in ("th", "st", "nd", "rd"):
            self.at += 1
            return base
        if isinstance(base, v.VECTORS) and self.token.text == "T":
            self.at += 1
            return functions.transposed(base)
        return v.power(expression(base), self.exponent())

    def _inverse(self, base: Value) -> Value | None:
        """Read `f^{-1}(x)`, for the letters of functions only; None for other powers."""
        if not isinstance(base, v.Name):
            return None
        ahead = [token.text for token in self.tokens[self.at : self.at + 5]]
        size = 4 if ahead == ["{", "-", "1", "}", "("] else 2 if ahead[:3] == ["-", "1", "("] else 0
        if not size or base.name not in self.functions | {"h", "H"}:
            return None
        self.at += size
        return v.Apply(f"{base.name}^-1", self.arguments())

    def exponent(self) -> Expr:
        """Return what follows ^: a group or one signed primary. `2^10` has the exponent 10, as in plain text."""
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
            return self._name(token)
        if token.kind == "func":
            return self.function(token.text)
        if token.kind == "cmd":
            return self.command(token.text)
        if token.kind == "open":
            return self.bracketed(token.text)
        if token.kind == "op" and token.text == "|":
            return self.absolute()
        if token.kind == "env" and token.text.startswith("begin"):
            self.deeper()
            matrix = matrix_from(self, token.text.removeprefix("begin "))
            self.depth -= 1
            return matrix
        if token.kind == "word" and token.text.lower() not in CONNECTIVES and unit_name(token.text) is None:
            return v.Name(token.text)
        if token.kind == "word" and (len(token.text) == 1 if token.upright else token.text.isupper()):
            return v.Name(token.text)
        raise UnreadableAnswer(f"unexpected {token.shown}")

    def _name(self, token: Token) -> Value:
        if token.text == "nan":
            raise v.Undefined("nan")
        if token.text == "empty":
            return v.Collection(())
        if token.text == "reals":
            return v.REALS
        return v.Name(token.text)

    def _mixed(self, number: v.Num, text: str) -> Value:
        """Return a mixed number such as `3 1/2` or `3\\frac{1}{2}` if a proper fraction follows, else the
        number itself.
        """
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


def _composed(name: str, arguments: tuple[Expr, ...]) -> Expr:
    """Return f(x), or f(g(x)) for a name such as that of `f \\circ g`."""
    outer, _, inner = name.partition(COMPOSED)
    if name == "C" and len(arguments) == 2 and all(isinstance(argument, v.Num) for argument in arguments):
        return functions.binomial(*arguments)
    return v.Apply(outer, (_composed(inner, arguments),)) if inner else v.Apply(outer, arguments)


def _times(value: Value, sign: int) -> Value:
    return functions.scaled(value, v.integer(sign)) if functions.is_vector(value) else bad("a vector plus a number")


def _primed(value: Value) -> Value:
    return v.Name(value.name + "'") if isinstance(value, v.Name) else bad("a prime")
