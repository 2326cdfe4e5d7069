"""Answers with letters that can be renamed: integer parameters, arbitrary constants, the argument of a function.

`2k pi` for all integers k is `2n pi` for all integers n, `x^2 + C` is `x^2 + c`, and `f(t) = t + 1` is `f(x) = x + 1`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Literal, TypeGuard, cast

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.canonical import TooLarge, canonical, difference
from ansatz.rewards.math_answer.functions import is_vector, mapped
from ansatz.rewards.math_answer.relations import assigned, find_line, same_name
from ansatz.rewards.math_answer.stream import expression
from ansatz.rewards.math_answer.values import Expr, Value
from ansatz.rewards.math_answer.views import as_number
from ansatz.rewards.math_answer.words import KNOWN_FUNCTIONS

_PARAMETERS = frozenset("knmljp")
LINE_PARAMETERS = frozenset({*"tsrku", "lambda", "mu", "nu", "alpha"})
VARIABLES = frozenset({*"xyzturs", "theta", "phi"})
CAPITAL = re.compile(r"C(_\w+)?|c_\w+")
_INDICES = frozenset("nkmij")
_CONSTANT = re.compile(r"[cCKkABD](_\w+)?|const|constant")
_MAX_CONSTANTS = 3
_MAX_RESIDUES, _MAX_TURNS = 500, 8
_INTEGERS = v.Name("blackboard Z")
Member = tuple[Value | None, Value]
"""The name of a member of a family, None if it has none, and its value."""


def renamed(value: Value, names: dict[str, Expr]) -> Value:
    """Return the value with all the names replaced at once."""
    return mapped(value, lambda part: names.get(part.name, part) if isinstance(part, v.Name) else part)


# integer parameters


def family_of(value: Value) -> v.Family | None:
    """Return the family that a value states: a congruence is one, and so is `5k + 2` without a word about k."""
    if isinstance(value, v.Family):
        return value
    name, stated = (value.sides[0], value.sides[1]) if _names_a_value(value) else (None, value)
    if isinstance(stated, v.Apply) and stated.function == "residues":
        parameter = "parameter of residues"
        residue, modulus = stated.arguments[0], stated.arguments[-1]
        body = v.add(v.multiply(modulus, v.Name(parameter)), residue)
        return v.Family(v.Relation((name, body), ("=",)) if name else body, (parameter,))
    if any(isinstance(part, v.Apply) and part.function == "residues" for part in v.children(value)):
        return None
    letters = v.names_in(stated) & _PARAMETERS - {_unknown(value)}
    return v.Family(value, tuple(letters)) if len(letters) == 1 else None


def list_members(value: Value) -> Value:
    """Return `e^{2 pi i k/3}, k = 0, 1, 2` as the list of its three members; any other value as it is."""
    items = value.items if isinstance(value, v.Listing) else ()
    for place, item in enumerate(items):
        if _names_a_value(item) and v.names_in(item.sides[0]) <= _PARAMETERS & v.names_in(v.Listing(items[:place])):
            numbers = [number for number in (item.sides[1], *items[place + 1 :]) if isinstance(number, v.Num)]
            if len(numbers) < 2 or len(numbers) < len(items) - place:
                return value
            (name,) = v.names_in(item.sides[0])
            return v.Listing(tuple(renamed(each, {name: number}) for number in numbers for each in items[:place]))
    return value


def _names_a_value(value: Value) -> TypeGuard[v.Relation]:
    return isinstance(value, v.Relation) and value.operators == ("=",) and isinstance(value.sides[0], v.Name)


def members_of(family: v.Family) -> list[Member]:
    """Return (name, expression) of each member; name: None if it has none."""
    items = family.body.items if isinstance(family.body, v.Listing) else (family.body,)
    pairs: list[Member] = []
    for item in items:
        if _names_a_value(item):
            pairs.append((item.sides[0], item.sides[1]))
        else:
            pairs.append((None, item))
    if pairs[0][0] is not None:  # x = a, b names x once
        pairs = [(name or pairs[0][0], value) for name, value in pairs]
    return pairs


def same_progression(gold: Expr, parameter: str, answer: Expr, other: str) -> Expr | Literal[False] | None:
    """Return n by k if `a k + b` and `c n + d` have the same values for all integers, and False if they do not.

    None if one of them is not of this form.
    """
    line, other_line = find_line(gold, parameter), find_line(answer, other)
    if line is None or other_line is None:
        return None
    (slope, start), (other_slope, other_start) = line, other_line
    opposite = not difference(canonical(slope), canonical(v.negate(other_slope)))
    if not opposite and difference(canonical(slope), canonical(other_slope)):
        return False
    turns = as_number(v.divide(v.add(other_start, v.negate(start)), slope))
    if turns is None or turns.denominator != 1:
        return False
    return v.multiply(v.MINUS_ONE if opposite else v.ONE, v.add(v.Name(parameter), v.Num(-turns)))


def have_same_residues(gold: list[Member], parameter: str, answer: list[Member], other: str) -> bool:
    """Return whether progressions of one name have the same values together.

    `k pi / 2` has those of `k pi` and `pi/2 + k pi`.
    """
    names = [name for name, _ in gold + answer if name is not None]
    if not all(same_name(names[0], name) for name in names):
        return False
    try:
        golds = [line for _, value in gold for line in _progressions(value, parameter)]
        (unit, base), num_golds = golds[0], len(golds)
        lines = golds + [line for _, value in answer for line in _progressions(value, other)]
        slopes = [as_number(v.divide(slope, unit)) for slope, _ in lines]
        starts = [as_number(v.divide(v.add(start, v.negate(base)), unit)) for _, start in lines]
    except (TooLarge, v.UnreadableAnswer):
        return False
    steps = [(abs(slope), start) for slope, start in zip(slopes, starts, strict=True) if slope and start is not None]
    if len(steps) < len(lines):
        return False
    period = Fraction(math.lcm(*(s.numerator for s, _ in steps)), math.gcd(*(s.denominator for s, _ in steps)))
    if sum(period / step for step, _ in steps) > _MAX_RESIDUES:
        return False
    residues = [{(start + k * step) % period for k in range(int(period / step))} for step, start in steps]
    return set[Fraction]().union(*residues[:num_golds]) == set[Fraction]().union(*residues[num_golds:])


def _progressions(value: Value, name: str) -> list[tuple[Expr, Expr]]:
    """Return (slope, start) of a progression, or of the two that `(-1)^n a + n b` consists of."""
    if line := find_line(expression(value), name):
        return [line]
    places = [cast("Expr", renamed(value, {name: v.integer(k)})) for k in range(_MAX_TURNS)]
    steps = [v.add(later, v.negate(one)) for one, later in zip(places, places[2:], strict=False)]
    if any(difference(canonical(step), canonical(other)) for step, other in zip(steps, steps[2:], strict=False)):
        raise v.UnreadableAnswer("not a progression")
    return list(zip(steps, places, strict=False))[:2]


# arguments of functions


def same_arguments(gold: v.Relation, answer: v.Relation) -> v.Relation | None:
    """Return the answer with the arguments of its function, or the index of its sequence, named as in the gold.

    None if that changes its meaning.
    """
    expected, stated = assigned(gold), assigned(answer)
    if expected is None or stated is None:
        return None
    (label, value), (other_label, other_value) = ((_as_call(name), stated) for name, stated in (expected, stated))
    if not isinstance(label, v.Apply) or not isinstance(other_label, v.Apply) or label.function != other_label.function:
        return None
    arguments, others = _plain_names(label), _plain_names(other_label)
    if arguments == others or len(arguments) != len(others) or label.function in KNOWN_FUNCTIONS:
        return None
    if (v.names_in(other_value) - set(others)) & set(arguments) or (v.names_in(value) - set(arguments)) & set(others):
        return None
    names: dict[str, Expr] = {other: v.Name(name) for other, name in zip(others, arguments, strict=True)}
    return v.Relation((expected[0], renamed(other_value, names)), ("=",))


def _as_call(label: Value) -> Value:
    """Return `a_n` as a function of n."""
    name, _, index = label.name.partition("_") if isinstance(label, v.Name) else ("", "", "")
    return v.Apply(f"{name}_", (v.Name(index),)) if index in _INDICES else label


def _plain_names(label: v.Apply) -> tuple[str, ...]:
    names = [argument.name for argument in label.arguments if isinstance(argument, v.Name)]
    return tuple(names) if len(set(names)) == len(label.arguments) else ()


# arbitrary constants


def with_constants_renamed(gold: Value, answer: Value) -> Iterator[Value]:
    """Return the answer with its arbitrary constants named as in the gold, in every order."""
    expected, stated = _stated(gold), _stated(answer)
    if expected is None or stated is None or isinstance(expected, v.Num) or isinstance(stated, v.Num):
        return
    constants = constants_in(expected)
    labelled = isinstance(gold, v.Relation) and not v.names_in(expected) - constants - VARIABLES
    if not constants or not all(_is_arbitrary(expected, name, of_gold=not labelled) for name in constants):
        return
    fixed = v.names_in(gold) - constants
    others = constants_in(stated) - fixed
    if len(others) != len(constants) or len(constants) > _MAX_CONSTANTS or fixed != v.names_in(answer) - others:
        return
    if not all(_is_arbitrary(stated, name, of_gold=False) for name in others):
        return
    if len({name.partition("_")[0] for name in others}) > 1 and not others <= {"A", "B", "D"}:
        return
    for order in itertools.permutations(sorted(constants)):
        names: dict[str, Expr] = {other: v.Name(name) for other, name in zip(sorted(others), order, strict=True)}
        yield renamed(answer, names)


def with_constants_absorbed(gold: Value, answer: Value) -> Iterator[tuple[Expr, Expr]]:
    """Return what two antiderivatives with a free constant add to their values at one place: sin^2 x + C and -cos^2 x
    + C are equal.
    """
    sides: list[Expr] = []
    variables = set[frozenset[str]]()
    for value in (gold, answer):
        stated = _stated(value)
        constants = [v.Name(name) for name in constants_in(stated)] if isinstance(stated, v.Sum) else []
        constants = [c for c in constants if isinstance(stated, v.Sum) and {c, v.negate(c)} & {*stated.terms}]
        if not isinstance(stated, v.Sum) or len(constants) != 1 or constants[0].name[0] not in "CcKk":
            return
        rest = v.add(v.ZERO, *(term for term in stated.terms if term not in (constants[0], v.negate(constants[0]))))
        variables.add(v.names_in(rest))
        place: dict[str, Expr] = {name: v.divide(v.integer(3), v.integer(7)) for name in v.names_in(rest) & VARIABLES}
        sides.append(v.add(rest, v.negate(cast("Expr", renamed(rest, place)))))
        if len(place) != 1 or not _is_arbitrary(stated, constants[0].name, of_gold=value is gold):
            return
    if len(variables) == 1 and len({value.sides[0] for value in (gold, answer) if isinstance(value, v.Relation)}) < 2:
        yield sides[0], sides[1]


def with_parameter_renamed(gold: Value, answer: Value) -> Iterator[Value]:
    """Return the answer with the parameter of a line, such as `(1, 2) + s(3, 4)`, named as in the gold."""
    sides = [side.sides[-1] if isinstance(side, v.Relation) else side for side in (gold, answer)]
    if not all(map(is_vector, sides)):
        return
    names = [v.names_in(side) for side in sides]
    if all(len(letters) == 1 and letters <= LINE_PARAMETERS for letters in names):
        yield renamed(answer, {next(iter(names[1])): v.Name(next(iter(names[0])))})


def with_domain_renamed(gold: Value, answer: Value) -> tuple[Value, Value] | None:
    """Return both sides without the real parameter that each of them names, as in `f(x) = cx, c \\in
    \\mathbb{R}`, or None.

    The parameter of the answer is named as in the gold.
    """
    expected, stated = _with_real_parameter(gold), _with_real_parameter(answer)
    if expected is None or stated is None:
        return None
    (body, name), (other_body, other) = expected, stated
    if name != other and (name in v.names_in(other_body) or other in v.names_in(body)):
        return None
    return body, renamed(other_body, {other: v.Name(name)})


def with_declared_renamed(gold: Value, answer: Value) -> Iterator[tuple[Value, Value]]:
    """Return both sides without the real constants that the gold declares, which are named in the answer as in
    the gold.

    `f(x) = mx + n` is `f(x) = ax + b, a, b \\in \\mathbb{R}`, and `f(x) = ax` is `f(x) = cx`.
    """
    body, declared = split_declared(gold)
    said, _ = split_declared(answer)
    if not isinstance(body, v.Relation) or not isinstance(said, v.Relation) or body.operators != ("=",):
        return
    label = body.sides[0]
    arguments = v.names_in(label) | v.names_in(said.sides[0])
    if not declared and isinstance(label, v.Apply) and v.names_in(body.sides[1]) - arguments == frozenset({"c"}):
        declared = frozenset({"c"})
    others = v.names_in(said) - arguments - (v.names_in(body) - declared)
    if not declared or len(others) != len(declared) or len(declared) > _MAX_CONSTANTS or others & VARIABLES:
        return
    for order in itertools.permutations(sorted(declared)):
        names: dict[str, Expr] = {other: v.Name(name) for other, name in zip(sorted(others), order, strict=True)}
        yield body, renamed(said, names)


def split_declared(value: Value) -> tuple[Value, frozenset[str]]:
    """Return (body, names) of a value followed by the names that can be any real numbers."""
    if not isinstance(value, v.Listing) or len(value.items) < 2:
        return value, frozenset()
    *names, domain = value.items[1:]
    if not isinstance(domain, v.Relation) or domain.operators != ("in",) or domain.sides[1] != v.REALS:
        return value, frozenset()
    listed = [name.name for name in (*names, domain.sides[0]) if isinstance(name, v.Name)]
    return (value.items[0], frozenset(listed)) if len(listed) == len(names) + 1 else (value, frozenset())


def with_parameters_declared(gold: Value, answer: Value) -> Iterator[tuple[Value, Value]]:
    """Return both sides as families, where only one of them says that its parameter is an integer, or where
    nothing else fits.

    Sets such as `\\{2k + 1 : k \\in \\mathbb{Z}\\}` and `3 + 7\\mathbb{Z}` say so. Two solutions of one unknown with pi
    do too, as in `x = \\pi/2 + k\\pi`. Otherwise the letter alone can differ, as in `6k \\pm 1` and `6m \\pm 1`.
    """
    expected, stated = _in_integers(gold), _in_integers(answer)
    if expected is not None or stated is not None:
        if (expected, stated) != (gold, answer):
            yield expected or gold, stated or answer
        return
    letters, others = v.names_in(gold) & _PARAMETERS, v.names_in(answer) & _PARAMETERS
    if len(letters) != 1 or len(others) != 1:
        return
    labels = _unknown(gold), _unknown(answer)
    if labels[0] and labels[1] and holds_pi(gold) and holds_pi(answer):
        yield v.Family(gold, tuple(letters)), v.Family(answer, tuple(others))
    listed = isinstance(gold, v.Listing) and isinstance(answer, v.Listing)
    if letters != others and (listed or labels[0] == labels[1] != ""):
        yield gold, renamed(answer, {next(iter(others)): v.Name(next(iter(letters)))})


def _in_integers(value: Value) -> Value | None:
    """Return the family that a value states with the integers; None if it does not speak of them."""
    if isinstance(value, v.Family):
        return value
    if isinstance(value, v.Relation) and value.operators == ("in",) and isinstance(value.sides[0], v.Name):
        family = _in_integers(value.sides[1])
        if isinstance(family, v.Family) and isinstance(family.body, v.EXPRESSIONS):
            return v.Family(v.Relation((value.sides[0], family.body), ("=",)), family.parameters)
        return None
    if isinstance(value, v.Collection) and len(value.items) == 1 and isinstance(value.items[0], v.Relation):
        stated, domain = value.items[0].sides[0], value.items[0].sides[-1]
        if domain == _INTEGERS and isinstance(stated, v.Ratio) and len(stated.terms) == 2:
            body, name = stated.terms
            return v.Family(body, (name.name,)) if isinstance(name, v.Name) else None
    if isinstance(value, v.EXPRESSIONS) and v.names_in(value) == frozenset({_INTEGERS.name}):
        name = "parameter of a coset"
        return v.Family(renamed(value, {_INTEGERS.name: v.Name(name)}), (name,))
    stated = value.sides[-1] if isinstance(value, v.Relation) else value
    return family_of(value) if isinstance(stated, v.Apply) and stated.function == "residues" else None


def _unknown(value: Value) -> str:
    """Return the unknown that every part of a solution names; "" if there is none."""
    parts = value.items if isinstance(value, v.Listing) else (value,)
    names = {part.sides[0].name for part in parts if _names_a_value(part) and isinstance(part.sides[0], v.Name)}
    known = len(names) == 1 and (isinstance(parts[0], v.Relation)) and names <= VARIABLES | {"alpha", "n"}
    return names.pop() if known else ""


def holds_pi(value: object) -> bool:
    return value == v.PI or any(holds_pi(part) for part in v.children(value))


def _with_real_parameter(value: Value) -> tuple[Value, str] | None:
    """Return (body, name) of a value followed by a name that can be any real number."""
    body, declared = split_declared(value)
    name = min(declared, default="")
    return (body, name) if len(declared) == 1 and name in v.names_in(body) else None


def _stated(value: Value) -> Expr | None:
    if isinstance(value, v.Relation):
        pair = assigned(value)
        value = pair[1] if pair else value
    return value if isinstance(value, v.EXPRESSIONS) else None


def _is_nested(value: Expr, name: str) -> bool:
    """Return whether a constant is added to variables within one term, as in 1/(x + C), where nothing else is given."""
    others = {other for other in v.names_in(value) if not _CONSTANT.fullmatch(other)}
    if not others or others - VARIABLES or not name.startswith(("C", "c", "K", "k")):
        return False

    def is_added(part: Expr) -> bool:
        if isinstance(part, v.Sum) and v.Name(name) in part.terms and v.names_in(part) & VARIABLES:
            return True
        return any(is_added(inner) for inner in v.children(part))

    return not isinstance(value, v.Sum) and is_added(value)


def constants_in(value: Value) -> frozenset[str]:
    return frozenset(name for name in v.names_in(value) if _CONSTANT.fullmatch(name))


def _is_arbitrary(value: Expr, name: str, *, of_gold: bool) -> bool:
    """Return whether a name looks like the constant of an integral or of a general solution, and is not a given
    quantity.
    """
    terms = value.terms if isinstance(value, v.Sum) else (value,)
    holding = [term for term in terms if name in v.names_in(term)]
    if len(holding) != 1:
        return False
    rest = [term for term in terms if term is not holding[0]]
    alone = holding[0] in (v.Name(name), v.negate(v.Name(name)))
    factors = holding[0].factors if isinstance(holding[0], v.Product) else (holding[0],)
    if _is_nested(value, name):
        return True
    if v.Name(name) not in factors or sum(name in v.names_in(factor) for factor in factors) != 1:
        return False
    others = v.names_in(value) - {name}
    if not others & VARIABLES or (alone and not rest):
        return False
    capital = CAPITAL.fullmatch(name) is not None
    if not of_gold or capital:
        return True
    given = {other for other in others if not _CONSTANT.fullmatch(other)} - VARIABLES
    varies = any(isinstance(factor, v.Power | v.Apply) and v.names_in(factor) & VARIABLES for factor in factors)
    return name in ("c", "K", "k") and not given and (alone or (name == "c" and varies))
