"""Layer 3: whether two values are the same answer. Exact; what cannot be settled exactly is asked of `algebra`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Literal

from ansatz.rewards.math_answer import sets
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.canonical import TooLarge, canonical, difference
from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.parse import read
from ansatz.rewards.math_answer.units import compatible, conversion
from ansatz.rewards.math_answer.values import Expr, Value
from ansatz.rewards.math_answer.views import (
    as_number,
    assigned,
    cleared,
    clock_terms,
    difference_of,
    factor_between,
    flattened,
    form_of,
    has_distinct_names,
    has_rational_coefficients,
    is_label,
    items_of,
    parted,
    significant_digits,
    with_letter_unit,
    words_of,
)

Question = Literal["equal", "rounded", "proportional", "same_direction"]
Algebra = Callable[[Question, Expr, Expr], bool]
"""What algebra is asked of two expressions: are they equal; is the second, a decimal, the first one rounded; is
their quotient a constant other than zero; is it a positive one."""


class Undecided(Exception):
    """Not settled without algebra."""


class Hedged(Exception):
    """The answer says two things that are not the same, as in 5 = 6."""


class Comparison:
    """One comparison: the options, and whom to ask what is beyond exact arithmetic."""

    def __init__(self, options: Options, algebra: Algebra) -> None:
        self._options = options
        self._algebra = algebra

    def same(self, gold: Value, answer: Value) -> bool:
        """Whether the two are the same answer. Raises Undecided, and Hedged for an answer at odds with itself."""
        if isinstance(gold, v.Choice) or isinstance(answer, v.Choice):
            return self._choices(gold, answer)
        if isinstance(gold, v.Relation) or isinstance(answer, v.Relation):
            return self._relations(gold, answer)
        if isinstance(gold, v.Listing | v.Collection) or isinstance(answer, v.Listing | v.Collection):
            return self._lists(gold, answer)
        return self._single(gold, answer)

    def _single(self, gold: Value, answer: Value) -> bool:
        if isinstance(gold, v.Quantity) or isinstance(answer, v.Quantity):
            return self._quantities(gold, answer)
        if sets.is_set_form(gold) or sets.is_set_form(answer):
            return self._sets(gold, answer)
        if isinstance(gold, v.EXPRESSIONS) and isinstance(answer, v.EXPRESSIONS):
            return self.equal(gold, answer)
        if isinstance(gold, v.Based | v.Ratio | v.Clock) or isinstance(answer, v.Based | v.Ratio | v.Clock):
            return self._written(gold, answer)
        if isinstance(gold, v.Text) or isinstance(answer, v.Text):
            return words_of(gold) == words_of(answer) != ""
        if isinstance(gold, v.Bracket) and isinstance(answer, v.Bracket):
            ends = (gold.left, gold.right) == (answer.left, answer.right)
            return ends and self._in_order(gold.items, answer.items)
        if isinstance(gold, v.Matrix) or isinstance(answer, v.Matrix):
            return self._matrices(gold, answer)
        return False

    # expressions

    def equal(self, gold: Expr, answer: Expr) -> bool:
        """Equal as functions of their variables; a decimal for an exact value as its rounding."""
        if isinstance(gold, v.Num) and isinstance(answer, v.Num):
            return self._numbers(gold, answer)
        if self._options.same_form and form_of(gold) != form_of(answer):
            return False
        if gold == answer:
            return True
        if v.INFINITY in (gold, answer) or v.negate(v.INFINITY) in (gold, answer):
            return False
        try:
            left, right = canonical(gold), canonical(answer)
            rest = difference(left, right)
        except TooLarge:
            return self._algebra("equal", gold, answer)
        if not rest:
            return True
        for exact, decimal in ((gold, answer), (answer, gold)):
            if isinstance(decimal, v.Num) and decimal.places is not None and not v.names_in(exact):
                number = as_number(exact)
                if number is not None:
                    return self._numbers(v.Num(number), decimal)
                rounded = significant_digits(decimal) >= self._options.digits and self._algebra(
                    "rounded", exact, decimal
                )
                return rounded or (not (left.pure and right.pure) and self._algebra("equal", gold, answer))
        if left.pure and right.pure:
            return False
        return self._algebra("equal", gold, answer)

    def _numbers(self, gold: v.Num, answer: v.Num) -> bool:
        if gold.value == answer.value:
            return True
        if gold.places is None and answer.places is None:
            return False
        if gold.places is not None and answer.places is not None:
            if not self._options.rounded_decimals:
                return False
            exact, decimal = (gold, answer) if gold.places > answer.places else (answer, gold)
        else:
            exact, decimal = (gold, answer) if gold.places is None else (answer, gold)
            if exact.value.denominator == 1:
                return False  # an integer is not known by a rounding
        assert decimal.places is not None
        near = abs(exact.value - decimal.value) <= Fraction(1, 2) * Fraction(10) ** -decimal.places
        return near and significant_digits(decimal) >= self._options.digits

    # units, written forms, choices

    def _quantities(self, gold: Value, answer: Value) -> bool:
        expected, unit = parted(gold)
        given, other = parted(answer)
        if unit and not other:
            given, other = with_letter_unit(given, unit)
        elif other and not unit:
            expected, unit = with_letter_unit(expected, other)
        percent = (("%", 1),)
        if isinstance(expected, v.EXPRESSIONS) and isinstance(given, v.EXPRESSIONS) and percent in (unit, other):
            return self._percents(expected, unit == percent, given, other == percent) and not (
                (unit and unit != percent) or (other and other != percent)
            )
        if self._options.units == "ignore" or compatible(unit, other):
            return self._single(expected, given)
        if self._options.units == "convert" and unit and other:
            factor, base = conversion(unit)
            other_factor, other_base = conversion(other)
            if base == other_base and isinstance(expected, v.EXPRESSIONS) and isinstance(given, v.EXPRESSIONS):
                return self.equal(v.multiply(expected, v.Num(factor)), v.multiply(given, v.Num(other_factor)))
        return False

    def _percents(self, gold: Expr, gold_signed: bool, answer: Expr, answer_signed: bool) -> bool:
        """10 % is 0.1; a bare 10 is right where the gold carries the sign, or by option."""
        if gold_signed and answer_signed:
            return self.equal(gold, answer)
        hundred = v.integer(100)
        if gold_signed:
            return self.equal(gold, answer) or self.equal(v.divide(gold, hundred), answer)
        return self.equal(gold, v.divide(answer, hundred)) or (
            self._options.percent_as_number and self.equal(gold, answer)
        )

    def _written(self, gold: Value, answer: Value) -> bool:
        if isinstance(gold, v.Ratio) and isinstance(answer, v.Ratio):
            return self._proportional(gold.terms, answer.terms)
        if isinstance(gold, v.Clock) and isinstance(answer, v.Clock):
            return gold == answer
        for one, other in ((gold, answer), (answer, gold)):
            if isinstance(one, v.Ratio) and isinstance(other, v.Clock):
                return clock_terms(one) == (other.hour, other.minute, other.second)
            if isinstance(one, v.Ratio) and isinstance(other, v.EXPRESSIONS) and len(one.terms) == 2:
                return one.terms[1] != v.ZERO and self.equal(v.divide(*one.terms), other)
            if isinstance(one, v.Based) and isinstance(other, v.EXPRESSIONS) and self._options.based_values:
                return self.equal(v.integer(int(one.digits, one.base)), other)
        if isinstance(gold, v.Based) and isinstance(answer, v.Based) and self._options.based_values:
            return int(gold.digits, gold.base) == int(answer.digits, answer.base)
        return gold == answer

    def _proportional(self, gold: Sequence[Expr], answer: Sequence[Expr]) -> bool:
        if len(gold) != len(answer) or v.ZERO in (gold[0], answer[0]):
            return tuple(gold) == tuple(answer)
        pairs = zip(gold[1:], answer[1:], strict=True)
        return all(self.equal(v.multiply(g, answer[0]), v.multiply(a, gold[0])) for g, a in pairs)

    def _choices(self, gold: Value, answer: Value) -> bool:
        if isinstance(gold, v.Choice):
            letter = answer.letter if isinstance(answer, v.Choice) else words_of(answer)
            if self._options.case_sensitive:
                name = letter if isinstance(answer, v.Choice) else getattr(answer, "name", letter)
                return gold.letter == name
            return gold.letter.lower() == letter.lower()
        assert isinstance(answer, v.Choice)
        if not answer.rest:
            return isinstance(gold, v.Name | v.Text) and words_of(gold) == answer.letter.lower()
        rest = read(answer.rest, self._options).value
        return rest is not None and not isinstance(rest, v.Choice) and self.same(gold, rest)

    # lists, matrices, sets

    def _lists(self, gold: Value, answer: Value) -> bool:
        if has_distinct_names(gold) != has_distinct_names(answer):
            if isinstance(gold, v.Listing | v.Bracket) and isinstance(answer, v.Listing | v.Bracket):
                return self._options.assignments and self._in_order(gold.items, answer.items)
            return False
        if sets.is_set_form(gold) or sets.is_set_form(answer):
            return self._sets(gold, answer)
        golds, answers = items_of(gold), items_of(answer)
        if (golds is None) != (answers is None) and any(sets.is_set_form(item) for item in golds or answers or ()):
            return self._sets(gold, answer)
        if golds is None or answers is None:
            one, single = (golds, answer) if golds is not None else (answers, gold)
            if one is None or len(one) != 1 or isinstance(single, v.Listing | v.Collection):
                return False
            return self.same(one[0], single) if golds is not None else self.same(gold, one[0])
        both_listed = isinstance(gold, v.Listing) and isinstance(answer, v.Listing)
        if both_listed and any(isinstance(item, v.Relation) for item in (*golds, *answers)):
            try:
                return self._sets(gold, answer)
            except sets.Unordered:
                pass
        if self._options.ordered and both_listed:
            return self._in_order(golds, answers)
        if both_listed:
            return len(golds) == len(answers) and self._matched(golds, answers, once=True)
        return self._matched(golds, answers, once=False) and self._matched(answers, golds, once=False)

    def _in_order(self, golds: Sequence[Value], answers: Sequence[Value]) -> bool:
        return len(golds) == len(answers) and self._all(zip(golds, answers, strict=True))

    def _all(self, pairs: Iterable[tuple[Value, Value]]) -> bool:
        """Whether all pairs are the same; one that differs settles it, whatever the others need."""
        undecided: Undecided | None = None
        for gold, answer in pairs:
            try:
                if not self.same(gold, answer):
                    return False
            except Undecided as error:
                undecided = error
        if undecided:
            raise undecided
        return True

    def _matched(self, golds: Sequence[Value], answers: Sequence[Value], *, once: bool) -> bool:
        """Whether each gold item has an answer item, each answer item taken once if so asked."""
        free = list(answers)
        undecided = False
        for gold in golds:
            found, open_question = None, False
            for candidate in free:
                try:
                    if self.same(gold, candidate):
                        found = candidate
                        break
                except Undecided:
                    open_question = True
            if found is None and not open_question:
                return False
            undecided |= found is None
            if once and found is not None:
                free = [candidate for candidate in free if candidate is not found]
        if undecided:
            raise Undecided
        return True

    def _matrices(self, gold: Value, answer: Value) -> bool:
        """Entry by entry. A row or a column also equals the point with its entries."""
        if isinstance(gold, v.Matrix) and isinstance(answer, v.Matrix):
            shape = gold.determinant == answer.determinant and len(gold.rows) == len(answer.rows)
            rows = zip(gold.rows, answer.rows, strict=True) if shape else ()
            return shape and self._all((v.Bracket("(", g, ")"), v.Bracket("(", a, ")")) for g, a in rows)
        matrix, point = (gold, answer) if isinstance(gold, v.Matrix) else (answer, gold)
        if (
            not isinstance(matrix, v.Matrix)
            or not isinstance(point, v.Bracket)
            or (point.left, point.right) != ("(", ")")
        ):
            return False
        if 1 not in (len(matrix.rows), len(matrix.rows[0])):
            return False
        entries = [entry for row in matrix.rows for entry in row]
        return self._in_order(entries, point.items)

    def _sets(self, gold: Value, answer: Value) -> bool:
        if v.names_in(gold) and v.names_in(answer) and v.names_in(gold) != v.names_in(answer):
            return False  # x > 3 is not y > 3
        try:
            left, right = sets.intervals(gold), sets.intervals(answer)
        except sets.Unordered:
            return self._pieces(gold, answer)
        if len(left) != len(right):
            return False
        closed = all(
            (a.low_closed, a.high_closed) == (b.low_closed, b.high_closed) for a, b in zip(left, right, strict=True)
        )
        return closed and self._all(
            pair for a, b in zip(left, right, strict=True) for pair in ((a.low, b.low), (a.high, b.high))
        )

    def _pieces(self, gold: Value, answer: Value) -> bool:
        """Unions whose ends hold variables, piece by piece."""
        if isinstance(gold, v.Combination) and isinstance(answer, v.Combination) and gold.operator == answer.operator:
            golds, answers = flattened(gold), flattened(answer)
            return len(golds) == len(answers) and self._matched(golds, answers, once=True)
        raise sets.Unordered

    # relations

    def _relations(self, gold: Value, answer: Value) -> bool:
        expected, given = self._resolved(gold), self._resolved(answer)
        if not isinstance(expected, v.Relation) and not isinstance(given, v.Relation):
            return self.same(expected, given)
        if isinstance(expected, v.Relation) and isinstance(given, v.Relation):
            named, other = assigned(expected), assigned(given)
            if named and other and named[0] == other[0] and self.same(named[1], other[1]):
                return True
            if self._as_relations(expected, given):
                return True
        elif isinstance(expected, v.Relation) and "=" in expected.operators:
            named = assigned(expected)
            return named is not None and self.same(named[1], given)
        elif isinstance(given, v.Relation) and "=" in given.operators:
            named = assigned(given)
            return named is not None and self.same(expected, named[1])
        if (
            isinstance(gold, v.Relation)
            and isinstance(answer, v.Relation)
            and "=" in (*gold.operators, *answer.operators)
        ):
            return False
        try:
            return self._sets(expected, given)
        except sets.Unordered:
            return False

    def _resolved(self, value: Value) -> Value:
        """A chain of equalities as the one value it states, or one relation. Raises Hedged for a contradiction."""
        if not isinstance(value, v.Relation):
            return value
        if value.operators == ("in",):
            return value.sides[1]
        if set(value.operators) - {"=", "~"}:
            return value
        sides = list(value.sides)
        if (
            len(sides) == 2
            and (assigned(value) or any(v.names_in(side) for side in sides))
            and "~" not in value.operators
        ):
            if assigned(value) is None and self._identity(sides):
                return sides[-1]
            return value
        label = sides[0] if is_label(sides[0]) else None
        stated = sides[1:] if label is not None else sides
        for index in range(1, len(stated)):
            about = value.operators[index - len(stated)] == "~"
            if not (self._rounds(stated[0], stated[index]) if about else self.same(stated[0], stated[index])):
                raise Hedged
        return v.Relation((label, stated[0]), ("=",)) if label is not None else stated[0]

    def _identity(self, sides: list[Value]) -> bool:
        left, right = sides
        return isinstance(left, v.EXPRESSIONS) and isinstance(right, v.EXPRESSIONS) and self.equal(left, right)

    def _rounds(self, exact: Value, decimal: Value) -> bool:
        """Whether `x ~ 3.33` holds to the digits written, two or more."""
        exact, decimal = parted(exact)[0], parted(decimal)[0]
        if not isinstance(exact, v.EXPRESSIONS) or not isinstance(decimal, v.Num):
            return False
        return abs(sets.approximate(exact) - float(decimal.value)) <= 0.51 * 10.0 ** -(decimal.places or 0)

    def _as_relations(self, gold: v.Relation, answer: v.Relation) -> bool:
        """Two equations or two inequalities: the same up to a factor (a positive one for inequalities)."""
        if len(gold.sides) != 2 or len(answer.sides) != 2:
            return False
        expected, given = difference_of(gold), difference_of(answer)
        if expected is None or given is None or expected[1] != given[1]:
            return False
        operator, (left, right) = expected[1], (expected[0], given[0])
        directed = operator not in ("=", "!=")
        try:
            top, other = canonical(left), canonical(right)
        except TooLarge:
            return self._algebra("same_direction" if directed else "proportional", left, right)
        factor = factor_between(cleared(top.top), cleared(other.top))
        if factor is not None and (not directed or (factor > 0 and len(top.bottom) == len(other.bottom) == 1)):
            return True
        if top.pure and other.pure and has_rational_coefficients(top.top) and has_rational_coefficients(other.top):
            return False
        return self._algebra("same_direction" if directed else "proportional", left, right)
