"""Layer 3: whether two values are the same answer. Exact; questions for algebra raise Undecided or go to a worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ansatz_verify import sets
from ansatz_verify import values as v
from ansatz_verify.equality import Equality, Undecided
from ansatz_verify.parse import fold, parse_answer
from ansatz_verify.relations import assigned, has_distinct_names, is_label, named_and_stated, same_name
from ansatz_verify.stream import expression
from ansatz_verify.units import Unit, compatible, conversion, parted, with_letter_unit
from ansatz_verify.values import Expr, Value

_DEGREES = (("deg", 1),)
_RADIANS = (("rad", 1),)
_TEMPERATURES = ((("C", 1),), (("F", 1),))
Items = tuple[Value, ...]
_WRITTEN = (v.Based, v.Ratio, v.Clock)


class Hedged(Exception):
    """The answer contradicts itself, as in 5 = 6."""


class Comparison(Equality):
    """Compares values of any kind."""

    def same(self, gold: Value, answer: Value) -> bool:
        """Return whether two values are the same answer.

        Raises Undecided, or Hedged for an answer that contradicts itself.
        """
        if isinstance(gold, v.Num) and isinstance(answer, v.Num):
            return self.equal(gold, answer)
        if isinstance(gold, v.Choice) or isinstance(answer, v.Choice):
            return self._choices(gold, answer)
        if isinstance(gold, v.Relation) or isinstance(answer, v.Relation):
            return self._relations(gold, answer)
        if isinstance(gold, v.LISTS) or isinstance(answer, v.LISTS):
            return self._lists(gold, answer)
        return self._single(gold, answer)

    def _single(self, gold: Value, answer: Value) -> bool:
        if isinstance(gold, v.Quantity) or isinstance(answer, v.Quantity):
            return self._quantities(gold, answer)
        if sets.is_set_form(gold) or sets.is_set_form(answer):
            return self._sets(gold, answer)
        if isinstance(gold, v.EXPRESSIONS) and isinstance(answer, v.EXPRESSIONS):
            return self.equal(gold, answer)
        if isinstance(gold, _WRITTEN) or isinstance(answer, _WRITTEN):
            return self._written(gold, answer)
        if isinstance(gold, v.Text) or isinstance(answer, v.Text):
            return _words_of(gold) == _words_of(answer) != ""
        if isinstance(gold, v.Bracket) and isinstance(answer, v.Bracket):
            ends = (gold.left, gold.right) == (answer.left, answer.right)
            return ends and self._in_order(gold.items, answer.items)
        if isinstance(gold, v.Matrix) or isinstance(answer, v.Matrix):
            return self._matrices(gold, answer)
        return False

    # units, written forms, choices

    def _quantities(self, gold: Value, answer: Value) -> bool:
        expected, gold_unit = parted(gold)
        amount, unit = parted(answer)
        if gold_unit and not unit:
            amount, unit = with_letter_unit(amount, gold_unit)
        elif unit and not gold_unit:
            expected, gold_unit = with_letter_unit(expected, unit)
        percent = (("%", 1),)
        if isinstance(expected, v.EXPRESSIONS) and isinstance(amount, v.EXPRESSIONS) and percent in (gold_unit, unit):
            if {gold_unit, unit} - {percent, ()}:
                return False  # a percentage and another unit
            return self._percents(expected, gold_unit == percent, amount, unit == percent)
        if _DEGREES in (gold_unit, unit) and {gold_unit, unit} <= {_DEGREES, _RADIANS, ()}:
            in_radians = self._in_radians(expected, gold_unit, amount, unit)
            if in_radians is not None:
                return in_radians
        if unit == _DEGREES and gold_unit in _TEMPERATURES:
            unit = gold_unit  # 25 degrees
        if self._options.units == "ignore" or compatible(gold_unit, unit):
            return self._single(expected, amount)
        if self._options.units == "convert" and gold_unit and unit:
            return self._converted(expected, gold_unit, amount, unit)
        return False

    def _in_radians(self, gold: Value, gold_unit: Unit, answer: Value, unit: Unit) -> bool | None:
        """Return whether an angle in degrees is the other one, where that is in radians; None where it is not."""
        degrees, other = (gold, answer) if gold_unit == _DEGREES else (answer, gold)
        if _RADIANS in (gold_unit, unit) or v.holds(other, v.PI) > v.holds(degrees, v.PI):
            return self._converts(v.Quantity(expression(degrees), _DEGREES), other)
        return False if unit == _DEGREES != gold_unit and v.holds(other, v.PI) else None

    def _converted(self, gold: Value, gold_unit: Unit, answer: Value, unit: Unit) -> bool:
        gold_factor, gold_base = conversion(gold_unit)
        factor, base = conversion(unit)
        if gold_base != base or not isinstance(gold, v.EXPRESSIONS) or not isinstance(answer, v.EXPRESSIONS):
            return False
        return self.equal(v.multiply(gold, v.Num(gold_factor)), v.multiply(answer, v.Num(factor)))

    def _percents(self, gold: Expr, gold_signed: bool, answer: Expr, answer_signed: bool) -> bool:
        """Compare percentages: 10 % is 0.1.

        A bare 10 is correct if the gold has the percent sign, or if the option allows it.
        """
        if gold_signed and answer_signed:
            return self.equal(gold, answer)
        hundred = v.integer(100)
        if gold_signed:
            return self.equal(gold, answer) or self.equal(v.divide(gold, hundred), answer)
        return self.equal(gold, v.divide(answer, hundred)) or (
            bool(self._options.percent_as_number) and self.equal(gold, answer)
        )

    def _written(self, gold: Value, answer: Value) -> bool:
        if isinstance(gold, v.Ratio) and isinstance(answer, v.Ratio):
            return self._proportional(gold.terms, answer.terms)
        if isinstance(gold, v.Clock) and isinstance(answer, v.Clock):
            return _same_time(gold, answer)
        if isinstance(gold, v.Ratio) and isinstance(answer, v.Clock) and answer.ratio:  # 10:25 for 2:5
            return self._proportional(gold.terms, [v.integer(term) for term in answer.ratio])
        if isinstance(gold, v.Clock) and isinstance(answer, v.Ratio):  # 7 to 12 for 7:12
            return answer.terms == tuple(v.integer(term) for term in gold.ratio)
        for written, number in ((gold, answer), (answer, gold)):
            if isinstance(written, v.Ratio) and isinstance(number, v.EXPRESSIONS) and len(written.terms) == 2:
                if _has_zero(written.terms):
                    return False
                quotient = v.divide(*written.terms)
                return self.equal(quotient, number) if written is gold else self.equal(number, quotient)
            if isinstance(written, v.Based) and isinstance(number, v.EXPRESSIONS) and self._options.based_values:
                return self.equal(v.Num(written.value), number)
        if isinstance(gold, v.Based) and isinstance(answer, v.Based) and self._options.based_values:
            return gold.value == answer.value
        return gold == answer

    def _proportional(self, gold: Sequence[Expr], answer: Sequence[Expr]) -> bool:
        """Return whether two ratios agree up to a factor. A ratio with a zero only equals itself."""
        if len(gold) != len(answer) or _has_zero(gold) or _has_zero(answer):
            return tuple(gold) == tuple(answer)
        pairs = zip(gold[1:], answer[1:], strict=True)
        return all(self.equal(v.multiply(g, answer[0]), v.multiply(a, gold[0])) for g, a in pairs)

    def _choices(self, gold: Value, answer: Value) -> bool:
        """Return whether two choices agree, also in case: the gold has the case that the question uses."""
        if isinstance(gold, v.Choice):
            lettered = isinstance(answer, v.Choice) and not self._options.case_sensitive
            stated = answer.letter if isinstance(answer, v.Choice) else getattr(answer, "name", None)
            return stated in ((gold.letter, gold.letter.lower()) if lettered else (gold.letter,))
        assert isinstance(answer, v.Choice)
        if not answer.rest:
            return isinstance(gold, v.Name) and gold.name == answer.letter
        rest = parse_answer(answer.rest, self._options).value
        return rest is not None and not isinstance(rest, v.Choice) and self.same(gold, rest)

    # lists, matrices, sets

    def _lists(self, gold: Value, answer: Value) -> bool:
        answer = self._with_chains_resolved(answer)
        if has_distinct_names(gold) != has_distinct_names(answer):
            if isinstance(gold, v.Listing | v.Bracket) and isinstance(answer, v.Listing | v.Bracket):
                return self._in_order(gold.items, answer.items) or self._names_coordinates(gold, answer)
            return False
        if sets.is_set_form(gold) or sets.is_set_form(answer):
            return self._sets(gold, answer)
        golds, answers = (value.items if isinstance(value, v.LISTS) else None for value in (gold, answer))
        if (golds is None) != (answers is None) and any(sets.is_set_form(item) for item in golds or answers or ()):
            return self._sets(gold, answer)
        if golds is None or answers is None:
            return self._list_and_single(gold, answer, golds, answers)
        return self._both_lists(gold, answer, golds, answers)

    def _list_and_single(self, gold: Value, answer: Value, golds: Items | None, answers: Items | None) -> bool:
        if isinstance(answer, v.Listing):
            return self._all((gold, item) for item in answer.items)  # 1/2 or 0.5
        if golds is not None:
            return len(golds) == 1 and self.same(golds[0], answer)
        return answers is not None and len(answers) == 1 and self.same(gold, answers[0])

    def _both_lists(self, gold: Value, answer: Value, golds: Items, answers: Items) -> bool:
        both_listed = isinstance(gold, v.Listing) and isinstance(answer, v.Listing)
        heads = {repr(item.sides[0]).partition("_")[0] for item in golds if isinstance(item, v.Relation)}
        if len(heads) > 1 and getattr(gold, "choice", None) != getattr(answer, "choice", None):
            return False  # x > 0 or y > 0 is not x > 0 and y > 0
        if both_listed and any(sets.is_set_form(item) for item in (*golds, *answers)):
            try:
                return self._sets(gold, answer)
            except sets.Unordered:
                pass
        if self._options.ordered and both_listed:
            return self._in_order(golds, answers)
        if both_listed:
            return len(golds) == len(answers) and self._matched(golds, answers, once=True)
        return self._matched(golds, answers, once=False) and self._matched(answers, golds, once=False)

    def _names_coordinates(self, gold: Value, answer: Value) -> bool:
        """Return whether an answer such as `y = 2, x = 1` names the coordinates of a point, in the order of letters."""
        items = answer.items if isinstance(answer, v.Listing) else ()
        pairs = [pair for item in items if isinstance(item, v.Relation) and (pair := assigned(item))]
        named = {name.name: value for name, value in pairs if isinstance(name, v.Name)}
        entries = gold.items if isinstance(gold, v.Bracket) and gold.left + gold.right == "()" else ()
        return 0 < len(named) == len(items) and self._in_order(entries, [named[name] for name in sorted(named)])

    def _with_chains_resolved(self, value: Value) -> Value:
        """Return a list of chains such as `x = 8/2 = 4, y = 5 - 4 = 1` as the list of the results that they state."""
        items = value.items if isinstance(value, v.Listing) else ()
        chains = [isinstance(i, v.Relation) and len(i.sides) > 2 and set(i.operators) <= {"=", "~"} for i in items]
        stated = (self._resolved(item) if chain else item for item, chain in zip(items, chains, strict=True))
        return v.Listing(tuple(stated), getattr(value, "choice", False)) if any(chains) else value

    def _in_order(self, golds: Sequence[Value], answers: Sequence[Value]) -> bool:
        return len(golds) == len(answers) and self._all(zip(golds, answers, strict=True))

    def _all(self, pairs: Iterable[tuple[Value, Value]]) -> bool:
        """Return whether all pairs are the same. A pair that differs decides it, even if another pair needs algebra."""
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
        """Return whether each gold item equals an answer item. once: an answer item serves one gold item only."""
        free = list(answers)
        undecided = False
        for gold in golds:
            match, open_question = None, False
            for candidate in free:
                if not once and isinstance(gold, v.Collection) != isinstance(candidate, v.Collection):
                    continue  # a set is not its element
                try:
                    if self.same(gold, candidate):
                        match = candidate
                        break
                except Undecided:
                    open_question = True
            if match is None and not open_question:
                return False
            undecided |= match is None
            if once and match is not None:
                free.remove(match)
        if undecided:
            raise Undecided
        return True

    def _matrices(self, gold: Value, answer: Value) -> bool:
        """Compare entry by entry. A row or a column also equals the point with the same entries."""
        if isinstance(gold, v.Matrix) and isinstance(answer, v.Matrix):
            shape = len(gold.rows) == len(answer.rows)
            rows = zip(gold.rows, answer.rows, strict=True) if shape else ()
            return shape and self._all((v.Bracket("(", g, ")"), v.Bracket("(", a, ")")) for g, a in rows)
        matrix, point = (gold, answer) if isinstance(gold, v.Matrix) else (answer, gold)
        if not isinstance(matrix, v.Matrix) or not isinstance(point, v.Bracket) or point.left + point.right != "()":
            return False
        entries = [entry for row in matrix.rows for entry in row]
        return 1 in (len(matrix.rows), len(matrix.rows[0])) and self._in_order(entries, point.items)

    def _sets(self, gold: Value, answer: Value) -> bool:
        if v.names_in(gold) and v.names_in(answer) and v.names_in(gold) != v.names_in(answer):
            return False  # x > 3 is not y > 3
        left, right = sets.intervals(gold), sets.intervals(answer)
        if len(left) != len(right):
            return False
        pairs = list(zip(left, right, strict=True))
        closed = all((a.low_closed, a.high_closed) == (b.low_closed, b.high_closed) for a, b in pairs)
        return closed and self._all(pair for a, b in pairs for pair in ((a.low, b.low), (a.high, b.high)))

    # relations

    def _relations(self, gold: Value, answer: Value) -> bool:
        expected, stated = self._resolved(gold), self._resolved(answer)
        if not isinstance(expected, v.Relation) and not isinstance(stated, v.Relation):
            repeated = self._repeats_decimal(expected, answer) or self._repeats_decimal(stated, gold)
            return repeated or self.same(expected, stated)
        if isinstance(expected, v.Relation) and isinstance(stated, v.Relation):
            if expected == stated:
                return True
            gold_name, name = assigned(expected), assigned(stated)
            if gold_name and name and same_name(gold_name[0], name[0]) and self.same(gold_name[1], name[1]):
                return True
            if self.same_equation(expected, stated):
                return True
        elif isinstance(expected, v.Relation) and "=" in expected.operators:
            named = assigned(expected)
            return named is not None and self.same(named[1], stated)
        elif isinstance(stated, v.Relation) and "=" in stated.operators:
            named = assigned(stated, totals=True)
            return named is not None and (self.same(expected, named[1]) or self._repeats_decimal(expected, answer))
        if any(isinstance(side, v.Relation) and "=" in side.operators for side in (expected, stated)):
            return False
        try:
            return self._sets(expected, stated)
        except sets.Unordered:
            return False

    def _resolved(self, value: Value) -> Value:
        """Return the one value that a chain of equalities states, or one relation.

        Raises Hedged if its members differ.
        """
        if not isinstance(value, v.Relation):
            return value
        if value.operators == ("in",):
            return value.sides[1] if is_label(value.sides[0]) else value
        if set(value.operators) - {"=", "~"}:
            return value
        sides = list(value.sides)
        named = assigned(value) is not None or any(v.names_in(side) for side in sides)
        if len(sides) == 2 and "~" not in value.operators and named:
            return sides[-1] if assigned(value) is None and self._identity(sides) else value
        names, stated = named_and_stated(sides)
        exact = stated[0]
        for index in range(1, len(stated)):
            about = value.operators[index - len(stated)] == "~"
            if self.rounds(exact, stated[index]) if about else self.same(exact, stated[index]):
                if isinstance(stated[index], v.Quantity) and not isinstance(exact, v.Quantity) and not about:
                    exact = stated[index]  # 6 * 8 = 48 cm is a length
                continue
            if about or not self._converts(exact, stated[index]):
                raise Hedged
            exact = stated[index]
        return v.Relation((names[0], exact), ("=",)) if names else exact

    def _converts(self, value: Value, other: Value) -> bool:
        """Return whether two members of a chain are one amount in two units or bases: 100 cm = 1 m, 12_5 = 7."""
        amount, unit = parted(value)
        if unit == (("deg", 1),) and isinstance(amount, v.EXPRESSIONS) and isinstance(other, v.EXPRESSIONS):
            return self.equal(v.divide(v.multiply(amount, v.PI), v.integer(180)), other)
        options = dataclasses.replace(self._options, units="convert", based_values=True)
        return Comparison(options, self._algebra).same(value, other)

    def _repeats_decimal(self, gold: Value, answer: Value) -> bool:
        """Return whether a decimal is the last member of the other side's chain: `1/3 = 0.33` and 0.33."""
        last = answer.sides[-1] if isinstance(answer, v.Relation) else None
        return isinstance(gold, v.Num) and gold.places is not None and gold == last

    def _identity(self, sides: list[Value]) -> bool:
        left, right = sides
        return isinstance(left, v.EXPRESSIONS) and isinstance(right, v.EXPRESSIONS) and self.equal(left, right)


def _has_zero(terms: Sequence[Expr]) -> bool:
    return any(isinstance(term, v.Num) and term.value == 0 for term in terms)


def _words_of(value: Value) -> str:
    if isinstance(value, v.Text):
        return value.words.lower()
    return fold(value.name) if isinstance(value, v.Name) else ""


def _same_time(gold: v.Clock, answer: v.Clock) -> bool:
    """Compare times: `4:30` is `4:30 p.m.` and `4:30 a.m.`, `16:30` is only `4:30 p.m.`"""
    if (gold.minute, gold.second) != (answer.minute, answer.second):
        return False
    hours = _hour_of_day(gold), _hour_of_day(answer)
    if None not in hours or hours == (None, None):
        return gold.hour == answer.hour if hours[0] is None else hours[0] == hours[1]
    return (gold.half or answer.half) != "" and gold.hour == answer.hour


def _hour_of_day(time: v.Clock) -> int | None:
    """Return the hour from 0 to 24; None for a time of the 12-hour clock without a.m. or p.m."""
    if time.half:
        return time.hour % 12 + (12 if time.half == "pm" else 0)
    return time.hour if time.hour > 12 or time.hour == 0 else None
