"""The upper half of a precedence parser for LaTeX and plain mathematics: from a list down to a set.

answer    clause (separator clause)*          separator: , ; "and" "or"
clause    quantity (relation quantity)*       relation: = < <= > >= != ~ in
quantity  sets unit?
sets      sum (union sum)*
"""

from __future__ import annotations

from collections.abc import Sequence

from ansatz_verify import values as v
from ansatz_verify.expressions import Expressions
from ansatz_verify.stream import expression
from ansatz_verify.units import Unit, read_unit
from ansatz_verify.values import UnreadableAnswer, Value
from ansatz_verify.words import CONDITION_WORDS, CURRENCIES, NEGATIONS, SCALES

_RELATIONS = frozenset({"=", "<", ">", "<=", ">=", "!=", "~", "in", "equiv"})
MAX_PARTS = 50
_MAX_SIGNS = 4  # of a clause that are read one by one
_AFTER_AMOUNT = ("%", *CURRENCIES)
_SETS = {"cup": "union", "cap": "intersection", "minus": "difference"}


class Parser(Expressions):
    """The whole parser. `answer` reads all tokens as one value."""

    def answer(self) -> Value:
        """Return all tokens as one value. A word of another language before it is a label, unless it denies."""
        label, following = self.tokens[self.at], self.tokens[self.at + 1]
        if label.kind == "word" and not label.text.isascii() and following.kind not in ("end", "op"):
            if NEGATIONS.intersection(label.text):
                raise UnreadableAnswer("a denial")
            self.at += 1
        value = self.list()
        if self.token.kind != "end":
            raise UnreadableAnswer(f"unexpected {self.token.shown}")
        return value

    def list(self) -> Value:
        items, choice = [self._signed_clause()], False
        while self.conditions or self.token.kind not in ("end", "close"):
            if self.conditions or self._condition_follows():
                items += self.conditions
                self.conditions.clear()
                continue
            joint = self._separators()
            if not joint or (joint[-1] in ",;" and self.token.kind in ("end", "close")):
                break
            choice = choice or "or" in joint
            if not self._condition_follows():
                items.append(self._signed_clause())
        flat = [part for item in items for part in (item.items if isinstance(item, Both) else (item,))]
        return flat[0] if len(flat) == 1 else v.Listing(tuple(flat), choice)

    def _separators(self) -> Sequence[str]:
        """Take the signs and words between two items of a list."""
        start = self.at
        while self.is_op(",", ";", "and", "or") or self.is_word("and", "or"):
            self.at += 1
        return [token.text.lower() for token in self.tokens[start : self.at]]

    def _condition_follows(self) -> bool:
        """Read `for all x`, `where k \\in Z`, `for n > 1` behind a clause: words, and a name or a relation."""
        start = self.at
        if self.token.text not in ("for", "where", "forall"):
            return False
        self.at += 1
        self._skip_condition_words()
        if self.token.kind == "name" and (self._ends_at(self.at + 1) or self.tokens[self.at + 1].kind == "word"):
            self.at += 1  # for all x; where C is a constant
            self._skip_condition_words()
        elif not self._ends_at(self.at):
            condition = self.clause()
            if not isinstance(condition, v.Relation) or "=" in condition.operators:
                raise UnreadableAnswer("a condition that gives a value")
            self.conditions.append(condition)
        if self.at == start + 1:
            raise UnreadableAnswer("a condition without words")
        return True

    def _skip_condition_words(self) -> None:
        while self.token.kind == "word" and self.token.text.lower() in CONDITION_WORDS:
            self.at += 1

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
            sides.append(self._side())
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

    def _quantity(self) -> Value:
        """Return a value with the unit that follows it, if any."""
        negative = self.is_op("-") and self.tokens[self.at + 1].text in CURRENCIES
        self.at += negative
        sign = self.take_op(*CURRENCIES)
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
            unit, self.at = read_unit(self.tokens, self.at, letters=True)
        return unit

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


def _is_set(value: Value) -> bool:
    return value == v.REALS or isinstance(value, v.Combination | v.Collection)


def _is_expression(value: Value) -> bool:
    """Return whether a clause is one expression, or gives a name its value."""
    if isinstance(value, v.Relation) and value.operators == ("=",) and isinstance(value.sides[0], v.Name):
        value = value.sides[1]
    return isinstance(value, v.EXPRESSIONS)


class Both(v.Listing):
    """The values of a clause with a `\\pm`."""
