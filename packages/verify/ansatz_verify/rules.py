"""Rules on values: forms of one statement become one. Each is here because real responses need it.

A rule takes a value and returns it, or another form of it. The number is how many of the labelled real answers get
another verdict without the rule; `benchmarks/evidence.py` counts them again. Rules apply to the items of a list, too.
"""

from __future__ import annotations

from collections.abc import Callable

from ansatz_verify import values as v
from ansatz_verify.functions import mapped
from ansatz_verify.relations import is_label
from ansatz_verify.values import Value
from ansatz_verify.words import KNOWN_FUNCTIONS

Rule = Callable[[Value], Value]
RULES: dict[Rule, int] = {}


def rule(changes: int) -> Callable[[Rule], Rule]:
    """Register a rule with the number of real verdicts that it changes."""

    def register(function: Rule) -> Rule:
        RULES[function] = changes
        return function

    return register


def in_usual_form(value: Value) -> Value:
    """Return a value after all rules, until none changes it."""
    if isinstance(value, v.Listing):
        value = v.Listing(tuple(map(in_usual_form, value.items)), value.choice)
    if isinstance(value, v.Relation | v.Listing):
        for each in RULES:
            if (form := each(value)) is not value:
                return in_usual_form(form)
    return value


def without_conditions(value: Value) -> Value:
    """Return a list without the relations that are conditions of its other items: `y = 2x, x > 0` is `y = 2x`.

    For an answer to a gold that has no condition; `x > 1, y > 2` and `5, x > 0` stay.
    """
    if isinstance(value, v.Listing) and value.choice:
        return value  # x = 1 or x > 3
    return _without(value, lambda item: isinstance(item, v.Relation) and not {"=", "in"} & set(item.operators))


def _without(value: Value, is_condition: Callable[[Value], bool]) -> Value:
    items = value.items if isinstance(value, v.Listing) else ()
    stated = [item for item in items if not is_condition(item)]
    if len(stated) == len(items):
        return value
    names = frozenset[str]().union(*map(v.names_in, stated))
    conditions = [{name for name in v.names_in(item) if " " not in name} for item in items if item not in stated]
    if not stated or not all(map(names.issuperset, conditions)):
        return value
    return stated[0] if len(stated) == 1 else v.Listing(tuple(stated), getattr(value, "choice", False))


@rule(changes=3)
def name_constants(value: Value) -> Value:
    """Take a constant's letter for a name where it gets a value: an eccentricity `e = 1/2`, an index `i = 2`.

    Example: `e = \\sqrt{2}/2` states the root. Near miss: `i = i + 1` and `\\pi = 3` state nothing.
    """
    if not isinstance(value, v.Relation) or value.operators[0] != "=" or value.sides[0] not in (v.E, v.Name("i")):
        return value
    constant, *others = value.sides
    if any(v.holds(side, constant) for side in others):
        return value
    return v.Relation((v.Name(f"the {getattr(constant, 'name', '')}"), *others), value.operators)


@rule(changes=2)
def name_entries(value: Value) -> Value:
    """Write `(x, y) = (1, 2)` as `x = 1, y = 2`.

    Example: the gold `1, 2` is stated. Near miss: `(x, x) = (1, 2)` and `(x, 2y) = (1, 2)` stay.
    """
    names, entries = value.sides if isinstance(value, v.Relation) and value.operators == ("=",) else (None, None)
    if not isinstance(names, v.Bracket) or not isinstance(entries, v.Bracket) or not is_label(names):
        return value
    if len(names.items) != len(entries.items) or len(set(names.items)) != len(names.items):
        return value
    pairs = zip(names.items, entries.items, strict=True)
    return v.Listing(tuple(v.Relation(pair, ("=",)) for pair in pairs))


@rule(changes=1)
def name_argument_x(value: Value) -> Value:
    """Call the argument of a function x.

    Example: `f(t) = t + 1` is `f(x) = x + 1`. Near miss: `f(t) = t + x` stays, and so does `f(2) = 3`.
    """
    label = value.sides[0] if isinstance(value, v.Relation) and value.operators == ("=",) else None
    if not isinstance(label, v.Apply) or label.function in KNOWN_FUNCTIONS or len(label.arguments) != 1:
        return value
    argument = label.arguments[0]
    if not isinstance(argument, v.Name) or argument.name in v.CONSTANTS or "x" in v.names_in(value):
        return value
    return mapped(value, lambda part: v.Name("x") if part == argument else part)


@rule(changes=2)
def drop_memberships(value: Value) -> Value:
    """Drop `x \\in R` and the like next to the statement that they restrict.

    Example: `f(x) = x, x \\in R` is `f(x) = x`. Near miss: `x \\in [0, 1]` is a value, and `5, x \\in R` stays.
    """
    return _without(
        value, lambda item: isinstance(item, v.Relation) and item.operators == ("in",) and _is_numbers(item)
    )


def _is_numbers(membership: v.Relation) -> bool:
    name = membership.sides[1]
    return isinstance(name, v.Name) and name.name.startswith(("reals", "blackboard"))
