"""Layer 3: whether two values are the same answer. Exact; what needs algebra raises Undecided or asks a worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ansatz.rewards.math_answer import parameters, sets, views
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.equality import Equality, Undecided
from ansatz.rewards.math_answer.parse import parse_answer
from ansatz.rewards.math_answer.pieces import is_same_function
from ansatz.rewards.math_answer.relations import assigned, has_distinct_names, is_label, named_and_stated, same_name
from ansatz.rewards.math_answer.stream import expression
from ansatz.rewards.math_answer.units import compatible, conversion
from ansatz.rewards.math_answer.values import Expr, Value

_DEGREES = (("deg", 1),)
_RADIANS = (("rad", 1),)
_TEMPERATURES = ((("C", 1),), (("F", 1),))
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
        if _is_family(gold) or _is_family(answer):
            return self._families(gold, answer)
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
        if isinstance(gold, v.Cases) or isinstance(answer, v.Cases):
            return self._cases(gold, answer)
        if isinstance(gold, v.EXPRESSIONS) and isinstance(answer, v.EXPRESSIONS):
            components = views.in_components(gold, answer)
            return self._single(*components) if components else self.equal(gold, answer)
        if isinstance(gold, _WRITTEN) or isinstance(answer, _WRITTEN):
            return self._written(gold, answer)
        if isinstance(gold, v.Text) or isinstance(answer, v.Text):
            return views.words_of(gold) == views.words_of(answer) != ""
        if isinstance(gold, v.EXPRESSIONS) or isinstance(answer, v.EXPRESSIONS):
            components = views.in_components(gold, answer)
            return components is not None and self._single(*components)
        if isinstance(gold, v.Bracket) and isinstance(answer, v.Bracket):
            ends = (gold.left, gold.right) == (answer.left, answer.right)
            return ends and self._in_order(gold.items, answer.items)
        if isinstance(gold, v.Matrix) or isinstance(answer, v.Matrix):
            return self._matrices(gold, answer)
        return False

    # units, written forms, choices

    def _quantities(self, gold: Value, answer: Value) -> bool:
        expected, gold_unit = views.parted(gold)
        amount, unit = views.parted(answer)
        if gold_unit and not unit:
            amount, unit = views.with_letter_unit(amount, gold_unit)
        elif unit and not gold_unit:
            expected, gold_unit = views.with_letter_unit(expected, unit)
        percent = (("%", 1),)
        if isinstance(expected, v.EXPRESSIONS) and isinstance(amount, v.EXPRESSIONS) and percent in (gold_unit, unit):
            if {gold_unit, unit} - {percent, ()}:
                return False  # a percentage and another unit
            return self._percents(expected, gold_unit == percent, amount, unit == percent)
        if _DEGREES in (gold_unit, unit) and {gold_unit, unit} <= {_DEGREES, _RADIANS, ()}:
            degrees, other = (expected, amount) if gold_unit == _DEGREES else (amount, expected)
            if _RADIANS in (gold_unit, unit) or parameters.holds_pi(other) > parameters.holds_pi(degrees):
                return self._converts(v.Quantity(expression(degrees), _DEGREES), other)
            if unit == _DEGREES != gold_unit and parameters.holds_pi(other):
                return False
        if unit == _DEGREES and gold_unit in _TEMPERATURES:
            unit = gold_unit  # 25 degrees
        if self._options.units == "ignore" or compatible(gold_unit, unit):
            return self._single(expected, amount)
        if self._options.units == "convert" and gold_unit and unit:
            gold_factor, gold_base = conversion(gold_unit)
            factor, base = conversion(unit)
            if gold_base == base and isinstance(expected, v.EXPRESSIONS) and isinstance(amount, v.EXPRESSIONS):
                return self.equal(v.multiply(expected, v.Num(gold_factor)), v.multiply(amount, v.Num(factor)))
        return False

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
            self._options.percent_as_number and self.equal(gold, answer)
        )

    def _written(self, gold: Value, answer: Value) -> bool:
        if isinstance(gold, v.Ratio) and isinstance(answer, v.Ratio):
            return self._proportional(gold.terms, answer.terms)
        if isinstance(gold, v.Clock) and isinstance(answer, v.Clock):
            return views.same_time(gold, answer)
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
        """Return the letters agree in case too: the gold has the case that the question uses."""
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
        domains = parameters.with_domain_renamed(gold, answer)
        if domains:
            return self.same(*domains)
        if has_distinct_names(gold) != has_distinct_names(answer):
            if isinstance(gold, v.Listing | v.Bracket) and isinstance(answer, v.Listing | v.Bracket):
                named = self._options.assignments and self._in_order(gold.items, answer.items)
                return named or self._names_coordinates(gold, answer)
            return False
        if sets.is_set_form(gold) or sets.is_set_form(answer):
            return self._sets(gold, answer)
        golds, answers = views.items_of(gold), views.items_of(answer)
        if (golds is None) != (answers is None) and any(sets.is_set_form(item) for item in golds or answers or ()):
            return self._sets(gold, answer)
        if golds is None or answers is None:
            items, single = (golds, answer) if golds is not None else (answers, gold)
            if isinstance(answer, v.Listing) and answer.choice:
                return self._all((gold, item) for item in answer.items)  # 1/2 or 0.5
            if items is None or len(items) != 1 or isinstance(single, v.Listing | v.Collection):
                return False
            return self.same(items[0], single) if golds is not None else self.same(gold, items[0])
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
        """Return a list of chains such as `x = 8/2 = 4, y = 5 - 4 = 1` as the list of what they state."""
        if not isinstance(value, v.Listing) or not any(_is_chain(item) for item in value.items):
            return value
        return v.Listing(tuple(self._resolved(item) if _is_chain(item) else item for item in value.items), value.choice)

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

    def _cases(self, gold: Value, answer: Value) -> bool:
        """Return whether two functions by cases have the same values, or the same pieces in any order."""
        try:
            return is_same_function(gold, answer, self.same)
        except sets.Unordered:
            if not isinstance(gold, v.Cases) or not isinstance(answer, v.Cases):
                return False
        free = views.conditions_of(answer)
        for value, condition in views.conditions_of(gold):
            match = next((pair for pair in free if self._same_piece(value, condition, *pair)), None)
            if match is None:
                return False
            free.remove(match)
        return not free

    def _same_piece(self, gold: Value, gold_condition: Value, answer: Value, condition: Value) -> bool:
        try:
            return self._sets(gold_condition, condition) and self.same(gold, answer)
        except sets.Unordered:
            return self.same(gold_condition, condition) and self.same(gold, answer)

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
        """Compare unions piece by piece, for ends that contain variables."""
        if isinstance(gold, v.Combination) and isinstance(answer, v.Combination) and gold.operator == answer.operator:
            golds, answers = views.flattened(gold), views.flattened(answer)
            return len(golds) == len(answers) and self._matched(golds, answers, once=True)
        raise sets.Unordered

    def _families(self, gold: Value, answer: Value) -> bool:
        """Return whether two families have the same members; the names of their parameters do not count."""
        expected, stated = parameters.family_of(gold), parameters.family_of(answer)
        if expected is None or stated is None or len(expected.parameters) != len(stated.parameters):
            return False
        if len(expected.parameters) != 1 or len(stated.parameters) != 1:
            names: dict[str, Expr] = dict(zip(stated.parameters, map(v.Name, expected.parameters), strict=True))
            return self.same(expected.body, parameters.renamed(stated.body, names))
        (parameter,), (other,) = expected.parameters, stated.parameters
        golds, answers = parameters.members_of(expected), parameters.members_of(stated)
        if parameters.have_same_residues(golds, parameter, answers, other):
            return True
        if len(golds) != len(answers):
            return False
        if has_distinct_names(expected.body):  # x = 1 + 2k, y = 3 - k: one number gives all of them
            turned = next((value for name, value in answers if name == golds[0][0]), answers[0][1])
            if isinstance(turned, v.EXPRESSIONS) and isinstance(golds[0][1], v.EXPRESSIONS):
                step = parameters.same_progression(golds[0][1], parameter, turned, other) or v.Name(parameter)
                return self.same(expected.body, parameters.renamed(stated.body, {other: step}))
        free = list(answers)
        for name, value in golds:
            match = next(
                (
                    pair
                    for pair in free
                    if (name is None or pair[0] is None or same_name(name, pair[0]))
                    and self._progressions(value, parameter, pair[1], other)
                ),
                None,
            )
            if match is None:
                return False
            free.remove(match)
        return True

    def _progressions(self, gold: Value, parameter: str, answer: Value, other: str) -> bool:
        if isinstance(gold, v.EXPRESSIONS) and isinstance(answer, v.EXPRESSIONS):
            same = parameters.same_progression(gold, parameter, answer, other)
            if same is not None:
                return same is not False
        return parameter not in v.names_in(answer) - {other} and self.same(
            gold, parameters.renamed(answer, {other: v.Name(parameter)})
        )

    # relations

    def _relations(self, gold: Value, answer: Value) -> bool:
        expected, stated = self._resolved(gold), self._resolved(answer)
        if not isinstance(expected, v.Relation) and not isinstance(stated, v.Relation):
            return self.same(expected, stated) or self._repeats_decimal(expected, answer)
        if isinstance(expected, v.Relation) and isinstance(stated, v.Relation):
            if expected == stated:
                return True
            gold_name, name = assigned(expected), assigned(stated)
            if gold_name and name and same_name(gold_name[0], name[0]) and self.same(gold_name[1], name[1]):
                return True
            same_letters = parameters.same_arguments(expected, stated)
            if same_letters and self._relations(expected, same_letters):
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
        amount, unit = views.parted(value)
        if unit == (("deg", 1),) and isinstance(amount, v.EXPRESSIONS) and isinstance(other, v.EXPRESSIONS):
            return self.equal(v.divide(v.multiply(amount, v.PI), v.integer(180)), other)
        options = dataclasses.replace(self._options, units="convert", based_values=True)
        return Comparison(options, self._algebra).same(value, other)

    def _repeats_decimal(self, gold: Value, answer: Value) -> bool:
        """Return whether the gold is a decimal that a consistent chain repeats as its last member: `1/3 =
        0.33` for 0.33.
        """
        last = answer.sides[-1] if isinstance(answer, v.Relation) else None
        return isinstance(gold, v.Num) and gold.places is not None and gold == last

    def _identity(self, sides: list[Value]) -> bool:
        left, right = sides
        return isinstance(left, v.EXPRESSIONS) and isinstance(right, v.EXPRESSIONS) and self.equal(left, right)


def _is_family(value: Value) -> bool:
    """Return whether a value is a family, or a congruence."""
    stated = value.sides[-1] if isinstance(value, v.Relation) else value
    return isinstance(stated, v.Family) or (isinstance(stated, v.Apply) and stated.function == "residues")


def _is_chain(value: Value) -> bool:
    return isinstance(value, v.Relation) and len(value.sides) > 2 and set(value.operators) <= {"=", "~"}


def _has_zero(terms: Sequence[Expr]) -> bool:
    return any(isinstance(term, v.Num) and term.value == 0 for term in terms)
