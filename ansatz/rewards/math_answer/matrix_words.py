"""Products of matrices that are called by capital letters, whose order matters, and of tensors, whose indices do.

Letters are matrices if products of them are inverted or transposed, as in `(AB)^{-1}`, if a bracket with one of them is
inverted next to another, or if one side has two of them in both orders, as `AB - BA` has. They are numbers otherwise.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

from ansatz.rewards.math_answer import parse
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.options import Options

_TOKEN = re.compile(
    r"(?:\s|\\left(?![a-z])|\\right(?![a-z])|\\[,;!]|\\cdot(?![a-z]))*"
    r"(?:([A-Z]|\\(?:Sigma|Lambda|Phi|Psi)(?![a-z]))|(\()|(\))|\^\s?\{?\s?(-1|-T|T|\\top|\\intercal)\s?\}?)\s*"
)
MAX_LENGTH = 200
Factor = tuple[str, bool, bool]
"""A letter, whether it is inverted, and whether it is transposed."""

_BOTH_ORDERS = re.compile(r"([A-Z])\s?(?!\1)([A-Z])[^,;=]*[-+][^,;=]*\2\s?\1")
_INVERTED = re.compile(r"^(?!.*(?:/|\\frac)).*\([^()]*(?<!\{)[-+][^()]*\)\s?\^\s?\{?\s?-\s?1")
_MAX_TERMS = 60
Terms = dict[tuple[str, ...], Fraction]
"""The coefficient of each product: its small letters in order, then its matrices as they stand."""

_INDEXED = re.compile(r"\s*([A-Za-z]|\\[A-Za-z]+)\s?((?:[_^]\s?(?:\{(?:\s|[a-z]|\\[a-z]+)+\}|[a-z]|\\[a-z]+)\s?)+)")
_INDICES = re.compile(r"([_^])\s?(\{[^}]*\}|[a-z]|\\[a-z]+)")
_MAX_TENSORS = 5


def compare_matrices(gold: str, answer: str) -> bool | None:
    """Tell whether two products of matrices or tensors, or sums of products of matrices, are equal; None if they are
    neither.
    """
    if "_" in gold and "_" in answer:
        return _compare_tensors(gold, answer)
    if len(gold) + len(answer) > MAX_LENGTH:
        return None
    if (_INVERTED.search(gold) and _INVERTED.search(answer)) or any(map(_BOTH_ORDERS.search, (gold, answer))):
        try:
            return _read_sum(gold) == _read_sum(answer)
        except v.UnreadableAnswer:
            return None
    return _compare_products(gold, answer)


def _read_sum(text: str) -> Terms:
    """Return a sum of products of matrices, after a name or alone. Raises UnreadableAnswer for other texts."""
    value = parse.parse_answer(text, Options(), letters=True).value
    if isinstance(value, v.Relation) and value.operators == ("=",) and isinstance(value.sides[0], v.Name):
        value = value.sides[1]
    return _expand(value)


def _expand(value: object) -> Terms:
    if isinstance(value, v.Num):
        return _add([((), value.value)])
    if isinstance(value, v.Name):
        return {(value.name,): Fraction(1)}
    if isinstance(value, v.Sum):
        return _add([pair for part in value.terms for pair in _expand(part).items()])
    if isinstance(value, v.Product):
        return functools.reduce(_multiply, map(_expand, value.factors))
    power = value.exponent if isinstance(value, v.Power) else None
    if not isinstance(value, v.Power) or not isinstance(power, v.Num) or power.value not in (-1, 2, 3, 4):
        raise v.UnreadableAnswer("no sum of products of letters")
    base = _expand(value.base)
    if power.value < 0:
        return {(f"({sorted(base.items())}",): Fraction(1)}
    return functools.reduce(_multiply, [base] * int(power.value))


def _multiply(left: Terms, right: Terms) -> Terms:
    if len(left) * len(right) > _MAX_TERMS:
        raise v.UnreadableAnswer("too many products")
    return _add([(_sort(w + other), a * b) for (w, a), (other, b) in itertools.product(left.items(), right.items())])


def _sort(word: tuple[str, ...]) -> tuple[str, ...]:
    """Put the numbers of a product first; the matrices too if they are made of one letter and the identity alone."""
    if len(set(re.findall(r"'(?!I')([A-Z]\w*)'", repr(word)))) < 2:
        return tuple(sorted(word))
    return tuple(sorted(word, key=lambda name: name if name[0].islower() else "~"))


def _add(terms: list[tuple[tuple[str, ...], Fraction]]) -> Terms:
    total: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    for word, coefficient in terms:
        total[word] += coefficient
    return {word: coefficient for word, coefficient in total.items() if coefficient}


def _compare_products(gold: str, answer: str) -> bool | None:
    """Tell whether two products of matrices are equal, as in (AB)^{-1} = B^{-1}A^{-1}.

    None unless both are such products, and the gold has an inverse or a transpose and two different factors: letters
    are numbers otherwise, whose order does not matter.
    """
    expected, stated = _read_product(gold), _read_product(answer)
    if expected is None or stated is None or len({(letter, transposed) for letter, _, transposed in expected}) < 2:
        return None
    has_marks = any(inverted or transposed for _, inverted, transposed in expected)
    return _reduce(expected) == _reduce(stated) if has_marks else None


def _read_product(text: str) -> list[Factor] | None:
    """Return the factors of a product; None for any other text, and for one that is too long to be one."""
    groups: list[list[list[Factor]]] = [[]]
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        letter, opening, closing, exponent = match.groups()
        if letter:
            groups[-1].append([(letter, False, False)])
        elif opening:
            groups.append([])
        elif closing and len(groups) > 1:
            groups[-2].append([*itertools.chain(*groups.pop())])
        elif exponent and groups[-1]:
            groups[-1][-1] = _raise(groups[-1][-1], exponent)
        else:
            return None
        at = match.end()
    return [*itertools.chain(*groups[0])] if len(groups) == 1 else None


def _raise(factors: list[Factor], exponent: str) -> list[Factor]:
    inverts, transposes = exponent.startswith("-"), not exponent.endswith("1")
    pairs = [(letter, inverted ^ inverts, transposed ^ transposes) for letter, inverted, transposed in factors]
    return pairs if exponent == "-T" else pairs[::-1]


def _reduce(factors: list[Factor]) -> list[Factor]:
    """Leave out each factor next to its inverse."""
    kept: list[Factor] = []
    for letter, inverted, transposed in factors:
        if kept and kept[-1] == (letter, not inverted, transposed):
            kept.pop()
        else:
            kept.append((letter, inverted, transposed))
    return kept


def _compare_tensors(gold: str, answer: str) -> bool | None:
    """Tell whether two products of tensors are equal; an index that occurs twice may have any name."""
    expected, stated = _read_tensors(gold), _read_tensors(answer)
    if expected is None or stated is None:
        return None
    count = Counter(index for _, indices in expected for index in indices)
    heads = [head for head, _ in expected if head[0][0] == "\\" or head[0].isupper()]
    contracted = max(count.values()) > 1 or any(lower > 1 for (_, _, lower), _ in expected)
    if len(heads) < 2 or not contracted or all(max(upper, lower) < 2 for (_, upper, lower), _ in expected):
        return None

    def agrees(order: tuple[Any, ...]) -> bool:
        if [head for head, _ in order] != [head for head, _ in expected]:
            return False
        pairs = {
            pair
            for (_, first), (_, second) in zip(expected, order, strict=True)
            for pair in zip(first, second, strict=True)
        }
        one_to_one = len(pairs) == len({index for index, _ in pairs}) == len({index for _, index in pairs})
        return one_to_one and all(index == other or count[index] == 2 for index, other in pairs)

    return len(expected) == len(stated) and any(map(agrees, itertools.permutations(stated)))


def _read_tensors(text: str) -> list[tuple[tuple[str, int, int], list[str]]] | None:
    """Return (letter, upper indices, lower indices) of each factor with all its indices, the upper ones first."""
    factors: list[tuple[tuple[str, int, int], list[str]]] = []
    at = 0
    while at < len(text):
        match = _INDEXED.match(text, at)
        if match is None or len(factors) == _MAX_TENSORS:
            return None
        groups = [(mark, re.findall(r"\\[a-z]+|[a-z]", part)) for mark, part in _INDICES.findall(match[2])]
        upper, lower = ([i for mark, part in groups if mark == each for i in part] for each in "^_")
        factors.append(((match[1], len(upper), len(lower)), upper + lower))
        at = match.end()
    return factors or None
