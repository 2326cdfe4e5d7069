"""Relations as answers: which side is only a name, and what value a chain of equalities states.

"x = 5", "AB = 5", "|AB| = 5", "f(2) = 5", "m + n = 5" and "V_1 : V_2 = 2 : 3" all give a named thing its value.
"2x = 10" and "x^2 + y^2 = 4" do not: they are equations, and the number on their right side is not their answer.
"""

from __future__ import annotations

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.canonical import TooLarge, canonical, difference
from ansatz.rewards.math_answer.functions import mapped, modulo, substitute
from ansatz.rewards.math_answer.values import Expr, Value
from ansatz.rewards.math_answer.views import as_number, parted
from ansatz.rewards.math_answer.words import KNOWN_FUNCTIONS

_UNKNOWNS = frozenset({"x", "y", "z", "t"})
"""Letters that usually stand for what an equation is solved for, so `|x| = 9` and `x + y = 9` are equations."""


def is_label(value: Value) -> bool:
    """Return whether the left side of an equation only names the right side: x, AB, f(x), det A, (x, y)."""
    if isinstance(value, v.Bracket):
        return all(isinstance(item, v.Name) and item.name not in v.CONSTANTS for item in value.items)
    if isinstance(value, v.Apply):
        return value.function not in KNOWN_FUNCTIONS or (value.function == "det" and is_label(value.arguments[0]))
    return isinstance(value, v.Name) and value.name not in v.CONSTANTS


def is_measure(value: Value) -> bool:
    """Return whether a value is a measured thing: a label, a length |AB|, sin A, or a ratio of labels."""
    if is_label(value):
        return True
    if isinstance(value, v.Ratio):
        return all(is_label(term) for term in value.terms)
    if isinstance(value, v.Apply):
        names = {argument.name for argument in value.arguments if isinstance(argument, v.Name)}
        known = value.function in ("abs", "sin", "cos", "tan")
        unknowns = _UNKNOWNS - {"z"}  # |z| is the modulus of a complex number
        return known and bool(names) and not names & (unknowns | v.CONSTANTS)
    if isinstance(value, v.Product):
        below = [factor for factor in value.factors if isinstance(factor, v.Power) and factor.exponent == v.MINUS_ONE]
        above = [factor for factor in value.factors if factor not in below]
        return (
            bool(below and above) and all(map(_is_length, above)) and all(_is_length(factor.base) for factor in below)
        )
    return False


def _is_length(value: Value) -> bool:
    """Return whether a factor is a name such as AB, V_1 or |AB|, and not an unknown."""
    if isinstance(value, v.Apply):
        return value.function == "abs" and _is_length(value.arguments[0])
    return isinstance(value, v.Name) and value.name not in v.CONSTANTS | _UNKNOWNS


def is_total(value: Value) -> bool:
    """Return whether a value is a plain sum that a problem can ask for, such as m + n, x_1 + x_2 or a^2 + b^2."""
    if not isinstance(value, v.Sum) or len(v.names_in(value)) < 2 or v.names_in(value) & _UNKNOWNS:
        return False
    return all(isinstance(term, v.Name) or (isinstance(term, v.Power) and is_label(term.base)) for term in value.terms)


def assigned(relation: v.Relation, *, totals: bool = False) -> tuple[Value, Value] | None:
    """Return (name, value) of an equation that gives a name its value, whichever side the name is on.

    totals: a sum of names counts as a name. This is for answers only: a gold `a + b = 5` is an equation.
    """
    if relation.operators != ("=",):
        return None
    left, right = relation.sides
    for name, value in ((left, right), (right, left)):
        if is_label(name):
            names = {name.function} if isinstance(name, v.Apply) and name.function != "det" else v.names_in(name)
            if not names & v.names_in(value) or _calls_values_only(name, value):
                return name, value
        elif (is_measure(name) or (totals and is_total(name))) and not v.names_in(value):
            return name, value
    return None


def _calls_values_only(label: Value, value: Value) -> bool:
    """Return whether an application such as y(t) is given by values of the same function, as in y(t) = y(0) e^{kt}."""
    if not isinstance(label, v.Apply) or not all(isinstance(argument, v.Name) for argument in label.arguments):
        return False

    def hidden(part: Expr) -> Expr:
        if isinstance(part, v.Apply) and part.function == label.function:
            return v.ONE if all(isinstance(argument, v.Num) for argument in part.arguments) else part
        return part

    return label.function not in v.names_in(mapped(value, hidden))


def same_name(left: Value, right: Value) -> bool:
    """Return whether two names are the same thing: AB, |AB| and an overlined AB are one length, x_1 is a value of x."""
    if isinstance(left, v.Name) and isinstance(right, v.Name) and left.name.split("_")[0] == right.name.split("_")[0]:
        return left == right or ("_" in left.name) != ("_" in right.name)
    return left == right or _length_of(left) == _length_of(right) != ""


def _length_of(value: Value) -> str:
    if isinstance(value, v.Apply) and value.function == "abs":
        value = value.arguments[0]
    name = value.name.removeprefix("overline ") if isinstance(value, v.Name) else ""
    return name if len(name) == 2 and name.isupper() else ""


def has_distinct_names(value: Value) -> bool:
    """Return whether a list gives values to different names; x_1 and x_2 count as one name."""
    if not isinstance(value, v.Listing):
        return False
    pairs = [assigned(item) if isinstance(item, v.Relation) else None for item in value.items]
    return len({repr(pair[0]).partition("_")[0] for pair in pairs if pair}) > 1


def named_and_stated(sides: list[Value]) -> tuple[list[Value], list[Value]]:
    """Return a chain split in two: the members before its values that only name something, and the values.

    The values are the constants at its end. A chain without constants has at most one name, its first member.
    """
    first = next((i for i, side in enumerate(sides) if not v.names_in(side) and not is_label(side)), len(sides))
    if first == len(sides):
        return (sides[:1], sides[1:]) if is_label(sides[0]) else ([], sides)
    if all(is_measure(side) or is_total(side) for side in sides[:first]):
        return sides[:first], sides[first:]
    formulas = sides[1:first]
    if formulas and all(isinstance(side, v.EXPRESSIONS) for side in formulas) and _names_a_thing(sides[0]):
        names = v.names_in(sides[0]) if isinstance(sides[0], v.Name | v.Bracket) else frozenset[str]()
        if all(names.isdisjoint(v.names_in(side)) for side in formulas):  # A = s^2 = 6^2 = 36
            return sides[:1] if is_label(sides[0]) else [], sides[first:]
    return [], sides


def _names_a_thing(side: Value) -> bool:
    """Return whether the first member of a chain is a label, or the absolute value or sine of something without
    unknowns.
    """
    if isinstance(side, v.Apply) and side.function == "abs":
        return bool(v.names_in(side)) and not v.names_in(side) & _UNKNOWNS - {"z"}
    return is_label(side) or (isinstance(side, v.Apply) and is_measure(side))


def by_entries(value: Value) -> Value:
    """Write `(x, y) = (1, 2)` as `x = 1, y = 2`; any other value as it is."""
    if not isinstance(value, v.Relation) or value.operators != ("=",):
        return value
    names, entries = value.sides
    if not isinstance(names, v.Bracket) or not isinstance(entries, v.Bracket) or not is_label(names):
        return value
    if len(names.items) != len(entries.items) or len(v.names_in(names)) != len(names.items):
        return value
    pairs = zip(names.items, entries.items, strict=True)
    return v.Listing(tuple(v.Relation((name, entry), ("=",)) for name, entry in pairs))


def residue_stated(value: v.Relation) -> v.Num | None:
    """Return the residue that a congruence between numbers states, as in 100 = 40 = 4 (mod 6); None if it does
    not hold.
    """
    last = value.sides[-1]
    if not isinstance(last, v.Apply) or last.function != "residues" or set(value.operators) != {"="}:
        return None
    residue, modulus = last.arguments
    sides = [side for side in value.sides[:-1] if isinstance(side, v.EXPRESSIONS) and not v.names_in(side)]
    holds = len(sides) == len(value.sides) - 1 and all(modulo(side, modulus) == residue for side in sides)
    return residue if holds and isinstance(residue, v.Num) else None


def without_bars(value: Value) -> Value:
    """Write `|x - 1| < 4` as `-4 < x - 1, x - 1 < 4`, and `|x| >= 2` as a choice; any other value as it is."""
    if not isinstance(value, v.Relation) or len(value.sides) != 2:
        return value
    inner, bound = value.sides
    operator = value.operators[0]
    if isinstance(bound, v.Apply):
        inner, bound, operator = bound, inner, {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(operator, operator)
    if not isinstance(inner, v.Apply) or inner.function != "abs" or not isinstance(bound, v.Num) or bound.value <= 0:
        return value
    if operator not in ("<", "<=", ">", ">="):
        return value
    name, *others = sorted(v.names_in(inner)) or [""]
    line = None if others else find_line(inner.arguments[0], name)
    if line is None or not isinstance(line[0], v.Num) or v.names_in(line[1]):
        return value
    center, reach = v.negate(v.divide(line[1], line[0])), v.divide(bound, v.Num(abs(line[0].value)))
    low, high = v.add(center, v.negate(reach)), v.add(center, reach)
    name = v.Name(name)
    if operator in ("<", "<="):
        return v.Relation((low, name, high), (operator, operator))
    below = v.Relation((name, low), (operator.replace(">", "<"),))
    return v.Listing((below, v.Relation((name, high), (operator,))), choice=True)


def find_line(value: Expr, name: str) -> tuple[Expr, Expr] | None:
    """Return (slope, start) of an expression that is linear in a name; None for any other."""
    try:
        start, next_one = (substitute(value, name, number) for number in (v.ZERO, v.ONE))
        slope = v.add(next_one, v.negate(start))
        rest = difference(canonical(value), canonical(v.add(v.multiply(slope, v.Name(name)), start)))
        if rest or not canonical(slope).top:
            return None
    except (TooLarge, v.UnreadableAnswer):
        return None
    number = as_number(slope)
    return slope if number is None else v.Num(number), start


def difference_of(relation: v.Relation) -> tuple[Expr, str] | None:
    """Return (left - right, operator) of a relation of two sides, with greater turned into less."""
    left, right = (parted(side)[0] for side in relation.sides)
    operator = relation.operators[0]
    if not isinstance(left, v.EXPRESSIONS) or not isinstance(right, v.EXPRESSIONS):
        return None
    if v.INFINITY in (left, right):
        return None
    if operator in (">", ">="):
        left, right, operator = right, left, operator.replace(">", "<")
    return v.add(left, v.negate(right)), operator
