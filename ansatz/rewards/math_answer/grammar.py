"""The upper half of a precedence parser for LaTeX and plain mathematics: from a list down to a set.

answer    clause (separator clause)*          separator: , ; "and" "or"
clause    quantity (relation quantity)*       relation: = < <= > >= != ~ in
quantity  sets unit?
sets      sum (union sum)*
"""

from __future__ import annotations

from fractions import Fraction

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.expressions import Expressions
from ansatz.rewards.math_answer.functions import modulo
from ansatz.rewards.math_answer.stream import bad, expression
from ansatz.rewards.math_answer.units import Unit, conversion, letter_unit, read_unit
from ansatz.rewards.math_answer.values import Expr, UnreadableAnswer, Value
from ansatz.rewards.math_answer.words import ALTERING_WORDS, CURRENCIES, HEDGES, NEGATIONS, NUMBER_WORDS, SCALES

_RELATIONS = frozenset({"=", "<", ">", "<=", ">=", "!=", "~", "in", "equiv"})
_INTEGERS = v.Name("blackboard Z")
MAX_PARTS = 50
_MAX_SIGNS = 4  # of a clause that are read one by one
_CURRENCY_SIGNS = tuple(CURRENCIES)
_AFTER_AMOUNT = ("%", *CURRENCIES)
_SETS = {"cup": "union", "cap": "intersection", "minus": "difference"}


class Parser(Expressions):
    """The whole parser. `answer` reads all tokens as one value."""

    def answer(self) -> Value:
        """Return all tokens as one value."""
        value = _as_family(self.list())
        if self.token.kind == "word" and not v.names_in(value):
            label = self._trailing_words()
            if label and isinstance(value, v.EXPRESSIONS):
                return v.Quantity(value, (("#" + label, 1),))
            if label and isinstance(value, v.Quantity):
                return value
        if self.token.kind != "end":
            raise UnreadableAnswer(f"unexpected {self.token.shown}")
        return value

    def _trailing_words(self) -> str:
        """Return the words of a `\\text{...}` at the end of the answer; "" if one of them doubts or changes
        the number.
        """
        start = self.at
        while self.token.kind == "word" and self.token.upright:
            self.at += 1
        words = [token.text.lower() for token in self.tokens[start : self.at]]
        if any(w in HEDGES or w in ALTERING_WORDS or w in NUMBER_WORDS or w in NEGATIONS for w in words):
            self.at = start
            return ""
        return " ".join(words)

    def list(self) -> Value:
        items, choice = [self._signed_clause()], False
        while self.token.kind not in ("end", "close"):
            word = self.token.text.lower() if self.token.kind == "word" else ""
            if self.take_op(",", ";"):
                while self.take_op(",", ";"):
                    pass
                word = self.token.text.lower() if self.token.kind == "word" else ""
                if self.token.kind == "end" or self.token.kind == "close":
                    break
                if word in ("and", "or"):
                    self.at += 1
            elif word in ("and", "or") or self.is_op("and", "or"):
                word = self.token.text.lower()
                self.at += 1
            else:
                break
            choice = choice or word == "or"
            items.append(self._signed_clause())
        flat = [part for item in items for part in (item.items if isinstance(item, Both) else (item,))]
        if len(flat) > 1 and not choice and isinstance(flat[0], v.Quantity):
            flat = _added(flat)
        return flat[0] if len(flat) == 1 else v.Listing(tuple(flat), choice)

    def _signed_clause(self) -> Value:
        """Return a clause; both of its readings if it holds a `\\pm`."""
        token = self.tokens[self.at]
        if token.number is not None and self._ends_at(self.at + 1):  # by far the most common clause
            self.at += 1
            return token.number
        start, first, outermost = self.at, self.num_signs, not self.turned
        outer, self.saw_sign = self.saw_sign, False
        value: Value = self.clause()
        doubled = self.saw_sign and outermost and self.depth == self.list_depth
        if doubled:
            given, readings = self.given[start : self.at], [value]
            count = self.num_signs - first
            apart = 1 < count <= _MAX_SIGNS and _is_expression(value) and all(token.text != "mp" for token in given)
            for turned in range(1, 2**count) if apart else (-1,):  # `\pm 2 \pm i` has four values
                self.tokens[start : self.at] = given
                self.at, self.num_signs, self.turned = start, first, turned << first
                readings.append(self.clause())
            value, self.turned = Both(tuple(readings)), 0
        self.saw_sign = outer or (self.saw_sign and not doubled)
        return value

    def _ends_at(self, at: int) -> bool:
        """Return whether a clause ends before a place, so that nothing there belongs to its last number."""
        token = self.tokens[at]
        return token.kind in ("end", "close") or token.text in (",", ";")

    def clause(self) -> Value:
        sides: list[Value] = [self._side()]
        operators: list[str] = []
        while self.token.kind == "op" and self.token.text in _RELATIONS:
            operators.append(self.token.text)
            self.at += 1
            self.congruent = operators[-1] == "equiv"
            sides.append(self._side())
            self.congruent = False
        modulus = self._modulus()
        if modulus is not None:
            sides[-1] = v.Apply("residues", (modulo(expression(sides[-1]), modulus), modulus))
        if operators[1:] and set(operators) <= {">", ">="}:  # a > b > c is c < b < a
            sides, operators = sides[::-1], [each.replace(">", "<") for each in reversed(operators)]
        if operators:
            return v.Relation(tuple(sides), tuple("=" if o == "equiv" else o for o in operators))
        return sides[0]

    def _side(self) -> Value:
        """Return one side of a relation: a quantity, or a ratio of several."""
        first = self._quantity()
        if not (self.is_op(":") or self.is_word("to")):
            return first
        terms = [expression(first)]
        while self.is_op(":") or self.is_word("to"):
            self.at += 1
            terms.append(expression(self._quantity()))
        return v.Ratio(tuple(terms))

    def _modulus(self) -> Expr | None:
        """Read `\\pmod 7` or `(mod 7)` after a side."""
        if self.token.kind == "cmd" and self.token.text == "pmod":
            self.at += 1
            return self.argument()
        if self.take_op("mod"):  # after a congruence; elsewhere it is an operator
            return self.expr()
        if self.token.text == "(" and self.next_is("mod"):
            self.at += 2
            modulus = self.expr()
            self.expect_close(")")
            return modulus
        return None

    def _quantity(self) -> Value:
        """Return a value with the unit that follows it, if any."""
        negative = self.is_op("-") and any(self.next_is(sign) for sign in _CURRENCY_SIGNS)
        self.at += negative
        sign = self.take_op(*_CURRENCY_SIGNS)
        currency = ((CURRENCIES[sign], 1),) if sign else ()
        outer, self.degrees = self.degrees, ""
        value = self._sets()
        scale = self.token.text.lower() if self.token.kind == "word" else ""
        if scale in SCALES and isinstance(value, v.EXPRESSIONS):
            self.at += 1
            value = v.multiply(value, v.integer(10 ** SCALES[scale]))
        if negative:
            value = v.negate(expression(value))
        unit = currency or (((self.degrees, 1),) if self.degrees else ())
        self.degrees = outer
        if after := self.take_op(*_AFTER_AMOUNT):
            unit = ((CURRENCIES.get(after, after), 1),)
        if self.token.kind not in ("end", "close"):
            written = self._written_unit(value)
            if not unit or all(power < 0 for _, power in written):  # $5 per hour
                unit = tuple(sorted((*unit, *written)))
        if unit and self.token.kind == "num" and isinstance(value, v.EXPRESSIONS):
            return self._compound(value, unit)
        if unit and isinstance(value, v.EXPRESSIONS):
            return v.Quantity(value, unit)
        if unit and unit != (("deg", 1),) and not isinstance(value, v.Bracket | v.Matrix):
            raise UnreadableAnswer("a unit follows a value that cannot have one")
        return value

    def _written_unit(self, value: Value) -> Unit:
        """Return the unit that is written after a value; empty if there is none."""
        unit: Unit = ()
        if self.token.kind in ("word", "cmd"):
            unit, self.at = read_unit(self.tokens, self.at)
        if not unit and self.depth == 0 and not self.letters_apart and not v.names_in(value):
            unit, self.at = letter_unit(self.tokens, self.at)
        return unit

    def _compound(self, first: Expr, unit: Unit) -> Value:
        """Read `1 hour 30 minutes`: both amounts in the second unit."""
        rest = self._quantity()
        if not isinstance(rest, v.Quantity):
            return bad("a number after a unit")
        (factor, base), (small_factor, small_base) = conversion(unit), conversion(rest.unit)
        if base != small_base or factor <= small_factor:
            return bad("two units that do not add")
        return v.Quantity(v.add(v.multiply(first, v.Num(factor / small_factor)), rest.amount), rest.unit)

    def _sets(self) -> Value:
        value, parts = self.sum(), 1
        while self.token.kind == "op" and (self.token.text in _SETS or (self.is_op("-") and _is_set(value))):
            operator = _SETS.get(self.token.text, "difference")
            self.at += 1
            parts += 1
            if parts > MAX_PARTS:
                raise UnreadableAnswer(f"more than {MAX_PARTS} sets are combined")
            right = self.sum()
            if operator == "difference" and isinstance(right, v.EXPRESSIONS) and right != v.REALS:
                right = v.Collection((right,))
            value = v.Combination(operator, (value, right))
        return value


def _added(items: list[Value]) -> list[Value]:
    """Add `2 hours and 5 minutes`, `1 hour, 2 minutes and 3 seconds`: one amount in the last unit; else the items."""
    total: Expr = v.ZERO
    above: tuple[Fraction, Unit] | None = None
    for item in items:
        if not isinstance(item, v.Quantity):
            return items
        factor, base = conversion(item.unit)
        if above is not None and (base != above[1] or factor >= above[0]):
            return items
        total = v.add(v.multiply(total, v.Num(above[0] / factor)) if above else total, item.amount)
        above = factor, base
    return [v.Quantity(total, items[-1].unit)] if isinstance(items[-1], v.Quantity) else items


def _is_set(value: Value) -> bool:
    return value == v.REALS or isinstance(value, v.Combination | v.Collection)


def _is_expression(value: Value) -> bool:
    """Return whether a clause is one expression, or gives a name its value."""
    if isinstance(value, v.Relation) and value.operators == ("=",) and isinstance(value.sides[0], v.Name):
        value = value.sides[1]
    return isinstance(value, v.EXPRESSIONS)


class Both(v.Listing):
    """The values of a clause with a `\\pm`."""


def _as_family(value: Value) -> Value:
    """Return a list that ends in `k in Z` as a family; any other value as it is."""
    if not isinstance(value, v.Listing):
        return value
    items, parameters = list(value.items), list[str]()
    while len(items) > 1:
        last = items[-1]
        member = isinstance(last, v.Relation) and last.operators == ("in",) and last.sides[1] == _INTEGERS
        name = last.sides[0] if isinstance(last, v.Relation) and member else last if parameters else None
        if not isinstance(name, v.Name):
            break
        parameters.append(name.name)
        items.pop()
    if not parameters:
        return value
    body = items[0] if len(items) == 1 else v.Listing(tuple(items), value.choice)
    return v.Family(body, tuple(parameters))
