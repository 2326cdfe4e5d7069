"""Relations as answers: which side is only a name, and which value a chain of equalities states.

`x = 5`, `AB = 5`, `|AB| = 5`, `f(2) = 5`, `m + n = 5` and `V_1 : V_2 = 2 : 3` all give a named thing its value.
`2x = 10` and `x^2 + y^2 = 4` do not: they are equations, and the number on their right side is not their answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ansatz_verify import values as v
from ansatz_verify.units import parted
from ansatz_verify.values import Expr, Value
from ansatz_verify.words import KNOWN_FUNCTIONS

_UNKNOWNS = frozenset({"x", "y", "z", "t"})
"""Letters that usually stand for the unknown of an equation, so `|x| = 9` and `x + y = 9` are equations."""


def is_label(value: Value) -> bool:
    """Return whether the left side of an equation only names the right side: x, AB, f(x), (x, y)."""
    if isinstance(value, v.Bracket):
        return all(isinstance(item, v.Name | v.Apply) and is_label(item) for item in value.items)
    if isinstance(value, v.Apply):
        return value.function not in KNOWN_FUNCTIONS
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
    return False


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
            names = {name.function} if isinstance(name, v.Apply) else v.names_in(name)
            if not names & v.names_in(value):
                return name, value
        elif (is_measure(name) or (totals and is_total(name))) and not v.names_in(value):
            return name, value
    return None


def same_name(left: Value, right: Value) -> bool:
    """Return whether two names are the same thing: x_1 is a value of x."""
    if isinstance(left, v.Name) and isinstance(right, v.Name) and left.name.split("_")[0] == right.name.split("_")[0]:
        return left == right or ("_" in left.name) != ("_" in right.name)
    return left == right


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
    # A name, perhaps formulas for it, and then its values: `C = 180 - (A + B) = 44`.
    if first and (is_measure(sides[0]) or all(is_measure(side) or is_total(side) for side in sides[:first])):
        return sides[:first], sides[first:]
    return [], sides


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


def commutes(value: Value) -> bool:
    """Return whether the products of capital letters in a value can be products of numbers.

    Not so in `AB - BA`, which has both orders, and in `PAP^{-1}`, where a letter has others around it.
    """
    orders = set(_orders(value))
    apart = any(len(list(itertools.groupby(order))) > len(set(order)) for order in orders)
    return not apart and len({tuple(sorted(order)) for order in orders}) == len(orders)


def _orders(value: Value) -> Iterator[tuple[str, ...]]:
    """Yield the capital letters of each product, in order, without their powers."""
    if isinstance(value, v.Product):
        bases = [factor.base if isinstance(factor, v.Power) else factor for factor in value.factors]
        yield tuple(base.name for base in bases if isinstance(base, v.Name) and base.name[:1].isupper())
    for part in v.children(value):
        yield from _orders(part)
