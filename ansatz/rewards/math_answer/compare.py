"""Layer 3: whether two values are the same answer. Exact; what cannot be settled exactly is asked of `algebra`.

Stages, cheapest first: the cleaned strings, rational numbers, structure and the normal form of expressions, algebra.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ansatz.rewards.math_answer import sets
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.canonical import Polynomial, TooLarge, canonical, difference
from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.parse import Reading, fold, plain, read, read_gold
from ansatz.rewards.math_answer.units import Unit, compatible, conversion
from ansatz.rewards.math_answer.values import Expr, Value
from ansatz.rewards.math_answer.words import is_single_letter_unit, unit_name
from ansatz.types import Reason

Question = Literal["equal", "rounded", "proportional", "same_direction"]
Algebra = Callable[[Question, Expr, Expr], bool]
"""What algebra is asked of two expressions: are they equal; is the second, a decimal, the first one rounded; is
their quotient a constant other than zero; is it a positive one."""


class Undecided(Exception):
    """Not settled without algebra."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """reason None: not settled without algebra."""

    reason: Reason | None
    stage: str


def settle(gold: str, answer: str, options: Options, algebra: Algebra | None = None) -> Outcome:
    """Grades an answer string against a gold string. Without `algebra` the reason may be None."""
    expected = read_gold(gold, options)
    if expected.undefined:
        return Outcome(Reason.DIFFERENT, "parse")
    if gold == answer and not options.reduced:
        return Outcome(Reason.EQUAL, "string")
    given = read(answer, options)
    if given.undefined:
        return Outcome(Reason.DIFFERENT, "parse")
    if given.unreduced and options.reduced and not expected.unreduced:
        return Outcome(Reason.DIFFERENT, "parse")
    if given.squeezed and expected.squeezed == given.squeezed:
        return Outcome(Reason.EQUAL, "string")
    if given.value is None:
        return Outcome(Reason.HEDGED if given.hedged else Reason.UNPARSED, "parse")
    if expected.value is None:
        same_words = fold(plain(expected.squeezed)) == fold(plain(given.squeezed)) != ""
        return Outcome(Reason.EQUAL if same_words else Reason.DIFFERENT, "string")
    return _settle_values(expected, given, options, algebra)


def _settle_values(expected: Reading, given: Reading, options: Options, algebra: Algebra | None) -> Outcome:
    gold, answer = expected.value, given.value
    assert gold is not None
    assert answer is not None
    if isinstance(gold, v.Text) or isinstance(answer, v.Text):
        words = fold(plain(expected.squeezed)), fold(plain(given.squeezed))
        cased = plain(expected.squeezed) == plain(given.squeezed) or not options.case_sensitive
        same = gold == answer or (words[0] == words[1] and cased)
        return Outcome(Reason.EQUAL if same else Reason.HEDGED if given.hedged else Reason.DIFFERENT, "string")
    stage = "number" if isinstance(gold, v.Num) and isinstance(answer, v.Num) else "structure"
    try:
        same = Comparison(options, algebra or _undecided).same(gold, answer)
    except Undecided:
        return Outcome(None, "algebra")
    except Hedged:
        return Outcome(Reason.HEDGED, stage)
    except (v.Unreadable, sets.Unordered):
        return Outcome(Reason.DIFFERENT, stage)
    if same:
        return Outcome(Reason.EQUAL, stage)
    hedged = given.hedged or (isinstance(answer, v.Listing) and not isinstance(gold, v.Listing | v.Collection))
    return Outcome(Reason.HEDGED if hedged else Reason.DIFFERENT, stage)


def _undecided(question: Question, gold: Expr, answer: Expr) -> bool:
    raise Undecided


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
            return _words(gold) == _words(answer) != ""
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
        if self._options.same_form and _form(gold) != _form(answer):
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
                rounded = _digits(decimal) >= self._options.digits and self._algebra("rounded", exact, decimal)
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
        return near and _digits(decimal) >= self._options.digits

    # units, written forms, choices

    def _quantities(self, gold: Value, answer: Value) -> bool:
        expected, unit = _parted(gold)
        given, other = _parted(answer)
        if unit and not other:
            given, other = _with_letter_unit(given, unit)
        elif other and not unit:
            expected, unit = _with_letter_unit(expected, other)
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
                return _clock_terms(one) == (other.hour, other.minute, other.second)
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
            letter = answer.letter if isinstance(answer, v.Choice) else _words(answer)
            if self._options.case_sensitive:
                name = letter if isinstance(answer, v.Choice) else getattr(answer, "name", letter)
                return gold.letter == name
            return gold.letter.lower() == letter.lower()
        assert isinstance(answer, v.Choice)
        if not answer.rest:
            return isinstance(gold, v.Name | v.Text) and _words(gold) == answer.letter.lower()
        rest = read(answer.rest, self._options).value
        return rest is not None and not isinstance(rest, v.Choice) and self.same(gold, rest)

    # lists, matrices, sets

    def _lists(self, gold: Value, answer: Value) -> bool:
        if _distinct_names(gold) != _distinct_names(answer):  # x=1, y=2 for 1, 2: names say more than a place in a list
            sequences = v.Listing | v.Bracket
            if not (self._options.assignments and isinstance(gold, sequences) and isinstance(answer, sequences)):
                return False
            return self._in_order(gold.items, answer.items)
        if sets.is_set_form(gold) or sets.is_set_form(answer):
            return self._sets(gold, answer)
        golds, answers = _items(gold), _items(answer)
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

    def _all(self, pairs: object) -> bool:
        """Whether all pairs are the same; one that differs settles it, whatever the others need."""
        undecided: Undecided | None = None
        for gold, answer in pairs:  # pyright: ignore
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
            return shape and self._all(
                pair
                for g, a in zip(gold.rows, answer.rows, strict=True)
                for pair in ((v.Bracket("(", g, ")"), v.Bracket("(", a, ")")),)
            )
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
            golds, answers = _flattened(gold), _flattened(answer)
            return len(golds) == len(answers) and self._matched(golds, answers, once=True)
        raise sets.Unordered

    # relations

    def _relations(self, gold: Value, answer: Value) -> bool:
        expected, given = self._resolved(gold), self._resolved(answer)
        if not isinstance(expected, v.Relation) and not isinstance(given, v.Relation):
            return self.same(expected, given)
        if isinstance(expected, v.Relation) and isinstance(given, v.Relation):
            named, other = _assigned(expected), _assigned(given)
            if named and other and named[0] == other[0] and self.same(named[1], other[1]):
                return True
            if self._as_relations(expected, given):
                return True
        elif isinstance(expected, v.Relation) and "=" in expected.operators:
            named = _assigned(expected)
            return named is not None and self.same(named[1], given)
        elif isinstance(given, v.Relation) and "=" in given.operators:
            named = _assigned(given)
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
        """A chain of equalities as the one value it states, or one relation. Raises Hedged where it contradicts itself."""
        if not isinstance(value, v.Relation):
            return value
        if value.operators == ("in",):
            return value.sides[1]
        if set(value.operators) - {"=", "~"}:
            return value
        sides = list(value.sides)
        if (
            len(sides) == 2
            and (_assigned(value) or any(v.names_in(side) for side in sides))
            and "~" not in value.operators
        ):
            if _assigned(value) is None and self._identity(sides):
                return sides[-1]
            return value
        label = sides[0] if _label(sides[0]) else None
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
        exact, decimal = _parted(exact)[0], _parted(decimal)[0]
        if not isinstance(exact, v.EXPRESSIONS) or not isinstance(decimal, v.Num):
            return False
        return abs(sets.approximate(exact) - float(decimal.value)) <= 0.51 * 10.0 ** -(decimal.places or 0)

    def _as_relations(self, gold: v.Relation, answer: v.Relation) -> bool:
        """Two equations or two inequalities: the same up to a factor (a positive one for inequalities)."""
        if len(gold.sides) != 2 or len(answer.sides) != 2:
            return False
        expected, given = _difference(gold), _difference(answer)
        if expected is None or given is None or expected[1] != given[1]:
            return False
        operator, (left, right) = expected[1], (expected[0], given[0])
        directed = operator not in ("=", "!=")
        try:
            top, other = canonical(left), canonical(right)
        except TooLarge:
            return self._algebra("same_direction" if directed else "proportional", left, right)
        factor = _factor(top.top, other.top)
        if factor is not None and (not directed or (factor > 0 and len(top.bottom) == len(other.bottom) == 1)):
            return True
        if top.pure and other.pure and _rational(top.top) and _rational(other.top):
            return False
        return self._algebra("same_direction" if directed else "proportional", left, right)


def as_number(value: Expr) -> Fraction | None:
    """The rational number that an expression is, None for any other."""
    form = canonical(value)
    if set(form.top) | set(form.bottom) <= {()}:
        return form.top.get((), Fraction(0)) / form.bottom[()]
    return None


def _digits(number: v.Num) -> int:
    """Significant digits of a decimal."""
    assert number.places is not None
    return len(str(abs(int(number.value * Fraction(10) ** number.places))))


def _form(value: Expr) -> tuple[str, int]:
    """The outermost shape: how many sums are multiplied."""
    if isinstance(value, v.Product):
        return "product", sum(isinstance(_base(factor), v.Sum) for factor in value.factors)
    if isinstance(value, v.Power) and isinstance(value.base, v.Sum) and value.exponent != v.MINUS_ONE:
        return "product", 1
    return ("sum", 1) if isinstance(value, v.Sum) else ("product", 0)


def _base(factor: Expr) -> Expr:
    return factor.base if isinstance(factor, v.Power) else factor


def _words(value: Value) -> str:
    if isinstance(value, v.Text):
        return value.words.lower()
    return fold(value.name) if isinstance(value, v.Name) else ""


def _parted(value: Value) -> tuple[Value, Unit]:
    return (value.amount, value.unit) if isinstance(value, v.Quantity) else (value, ())


def _with_letter_unit(value: Value, unit: Unit) -> tuple[Value, Unit]:
    """`5 m` as 5 metres, where the other side has that unit; elsewhere the letter is a variable."""
    if isinstance(value, v.Product) and isinstance(value.factors[-1], v.Name):
        letter = value.factors[-1].name
        if is_single_letter_unit(letter) and ((unit_name(letter), 1),) == unit:
            return v.multiply(*value.factors[:-1]), unit
    return value, ()


def _items(value: Value) -> tuple[Value, ...] | None:
    return value.items if isinstance(value, v.Listing | v.Collection) else None


def _flattened(value: Value) -> list[Value]:
    if isinstance(value, v.Combination) and value.operator == "union":
        return [piece for part in value.parts for piece in _flattened(part)]
    return [value]


def _clock_terms(ratio: v.Ratio) -> tuple[int, ...] | None:
    terms = [int(t.value) if isinstance(t, v.Num) and t.value.denominator == 1 else -1 for t in ratio.terms]
    return tuple([*terms, 0][:3]) if len(terms) in (2, 3) else None


def _label(value: Value) -> bool:
    """Whether the left side of an equation merely names the right one: x, AB, f(x), (x, y)."""
    if isinstance(value, v.Bracket):
        return all(isinstance(item, v.Name) and item.name not in v.CONSTANTS for item in value.items)
    if isinstance(value, v.Apply):
        return len(value.function.rstrip("'")) == 1
    return isinstance(value, v.Name) and value.name not in v.CONSTANTS


def _assigned(relation: v.Relation) -> tuple[Value, Value] | None:
    """(name, value) of an equation that gives a name its value, on whichever side the name stands."""
    if relation.operators != ("=",):
        return None
    left, right = relation.sides
    for name, value in ((left, right), (right, left)):
        if _label(name) and not (v.names_in(name) if not isinstance(name, v.Apply) else {name.function}) & v.names_in(
            value
        ):
            return name, value
    return None


def _distinct_names(value: Value) -> bool:
    """Whether a list gives values to different names; x_1 and x_2 are one name."""
    if not isinstance(value, v.Listing):
        return False
    assigned = [_assigned(item) if isinstance(item, v.Relation) else None for item in value.items]
    return len({repr(pair[0]).partition("_")[0] for pair in assigned if pair}) > 1


def _difference(relation: v.Relation) -> tuple[Expr, str] | None:
    """(left - right, operator), with greater turned into less."""
    left, right = (_parted(side)[0] for side in relation.sides)
    operator = relation.operators[0]
    if not isinstance(left, v.EXPRESSIONS) or not isinstance(right, v.EXPRESSIONS):
        return None
    if v.INFINITY in (left, right):
        return None
    if operator in (">", ">="):
        left, right, operator = right, left, operator.replace(">", "<")
    return v.add(left, v.negate(right)), operator


def _factor(left: Polynomial, right: Polynomial) -> Fraction | None:
    """The number other than zero that turns one polynomial into the other, None where there is none."""
    if left.keys() != right.keys() or not left:
        return None
    monomial = next(iter(left))
    factor = right[monomial] / left[monomial]
    return factor if all(right[m] == c * factor for m, c in left.items()) else None


def _rational(polynomial: Polynomial) -> bool:
    """Whether the coefficients are plain rational numbers, no roots or pi."""
    return all(atom[0] == "v" and atom[1] not in v.CONSTANTS for monomial in polynomial for atom, _ in monomial)
