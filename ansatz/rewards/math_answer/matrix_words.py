"""Products of matrices that are called by capital letters, whose order matters, and of tensors, whose indices do.

Letters are matrices if products of them are inverted or transposed, as in `(AB)^{-1}`, if a bracket with one of them is
inverted next to another, or if one side has two of them in both orders, as `AB - BA` has. They are numbers otherwise.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from ansatz.rewards.math_answer import parse
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.options import Options

_PRODUCT = re.compile(
    r"(?:\s|\\(?:left|right|cdot|Sigma|Lambda|Phi|Psi)(?![a-z])|\\[,;!]|[A-Z()]|\^\s?\{?\s?(?:-1|-?T)\s?\}?)+"
)
_CAPITALS = re.compile(r"[A-Z](?![a-z])")
_TRANSPOSED = re.compile(r"\\(?:top|intercal)(?![a-z])")
_EXPONENT = re.compile(r"\^\s?\{?\s?-?(?:1|(T))\s?\}?")
MAX_LENGTH, _MAX_TERMS, _MAX_TENSORS = 200, 60, 5
_BOTH_ORDERS = re.compile(r"([A-Z])\s?(?!\1)([A-Z])[^,;=]*[-+][^,;=]*\2\s?\1")
_INVERTED = re.compile(r"^(?!.*(?:/|\\frac)).*\([^()]*(?<!\{)[-+][^()]*\)\s?\^\s?\{?\s?-\s?1")
Factor = tuple[str, bool, bool]
"""A letter or an inverted sum, whether it is inverted, and whether it is transposed."""
Terms = dict[tuple[Factor, ...], Fraction]
"""The coefficient of each product: its small letters in order, then its matrices as they stand."""

_INDEXED = re.compile(r"\s*([A-Za-z]|\\[A-Za-z]+)\s?((?:[_^]\s?(?:\{(?:\s|[a-z]|\\[a-z]+)+\}|[a-z]|\\[a-z]+)\s?)+)")
_INDICES = re.compile(r"([_^])\s?(\{[^}]*\}|[a-z]|\\[a-z]+)")


def compare_matrices(gold: str, answer: str) -> bool | None:
    """Tell whether two products of matrices or tensors, or sums of products of matrices, are equal; None if they are
    neither.
    """
    if "_" in gold and "_" in answer:
        return _compare_tensors(gold, answer)
    if len(gold) + len(answer) > MAX_LENGTH or not _CAPITALS.search(gold + answer):
        return None
    sides = [_TRANSPOSED.sub("T", text.strip("$ .")) for text in (gold, answer)]
    letters = re.findall("[A-Z][a-z]*", _EXPONENT.sub("", sides[0]))
    different = letters if "T" in _EXPONENT.findall(sides[0]) else set(letters)
    in_order = "^" in gold and len(different) > 1 and all(map(_PRODUCT.fullmatch, sides))
    if not in_order and not all(map(_INVERTED.search, sides)) and not any(map(_BOTH_ORDERS.search, sides)):
        return None
    try:
        return _read_sum(sides[0]) == _read_sum(sides[1])
    except v.UnreadableAnswer:
        return None
    except OverflowError:
        return False


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
        return {((value.name, False, False),): Fraction(1)}
    if isinstance(value, v.Sum):
        return _add([pair for part in value.terms for pair in _expand(part).items()])
    if isinstance(value, v.Product):
        return functools.reduce(_multiply, map(_expand, value.factors))
    if not isinstance(value, v.Power):
        raise v.UnreadableAnswer("no sum of products of letters")
    base, power = _expand(value.base), value.exponent
    if isinstance(power, v.Num) and power.value in (2, 3, 4):
        return functools.reduce(_multiply, [base] * int(power.value))
    inverts = power in (v.MINUS_ONE, v.negate(v.Name("T")))
    transposes = power != v.MINUS_ONE
    if not inverts and power != v.Name("T"):
        raise v.UnreadableAnswer("no power of a matrix")
    if inverts and (len(base) > 1 or () in base):
        return {((f"({sorted(base.items())}", True, transposes),): Fraction(1)}
    step, sign = 1 if inverts == transposes else -1, -1 if inverts else 1
    marked = {factor: (factor[0], factor[1] ^ inverts, factor[2] ^ transposes) for word in base for factor in word}
    return {tuple(marked[factor] for factor in word[::step]): number**sign for word, number in base.items()}


def _multiply(left: Terms, right: Terms) -> Terms:
    if len(left) * len(right) > _MAX_TERMS:
        raise OverflowError("too many products")
    return _add([(_sort(w + other), a * b) for (w, a), (other, b) in itertools.product(left.items(), right.items())])


def _sort(word: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """Put the numbers of a product first, and leave out each factor next to its inverse.

    The matrices are put in order too if they are made of one letter and the identity alone.
    """
    kept: list[Factor] = []
    for name, inverted, transposed in word:
        if kept and kept[-1] == (name, not inverted, transposed):
            kept.pop()
        else:
            kept.append((name, inverted, transposed))
    if not any(transposed for _, _, transposed in kept) and len(set(re.findall(r"'(?!I')([A-Z]\w*)'", repr(kept)))) < 2:
        return tuple(sorted(kept))
    return tuple(sorted(kept, key=lambda factor: factor[0] if factor[0][0].islower() else "~"))


def _add(terms: Iterable[tuple[tuple[Factor, ...], Fraction]]) -> Terms:
    total: Terms = defaultdict(Fraction)
    for word, coefficient in terms:
        total[word] += coefficient
    return {word: coefficient for word, coefficient in total.items() if coefficient}


def _compare_tensors(gold: str, answer: str) -> bool | None:
    """Tell whether two products of tensors are equal; an index that occurs twice may have any name."""
    expected, stated = _read_tensors(gold), _read_tensors(answer)
    if expected is None or stated is None:
        return None
    names = [index for _, indices in expected for index in indices]
    count = Counter(names)
    heads = [head for head, _ in expected if head[0][0] == "\\" or head[0].isupper()]
    contracted = max(count.values()) > 1 or any(lower > 1 for (_, _, lower), _ in expected)
    if len(heads) < 2 or not contracted or all(max(upper, lower) < 2 for (_, upper, lower), _ in expected):
        return None

    def agrees(order: tuple[Any, ...]) -> bool:
        if [head for head, _ in order] != [head for head, _ in expected]:
            return False
        pairs = set(zip(names, [index for _, indices in order for index in indices], strict=True))
        one_to_one = len(pairs) == len({index for index, _ in pairs}) == len({index for _, index in pairs})
        return one_to_one and all(index == other or count[index] == 2 for index, other in pairs)

    return len(expected) == len(stated) and any(map(agrees, itertools.permutations(stated)))


def _read_tensors(text: str) -> list[tuple[tuple[str, int, int], list[str]]] | None:
    """Return (letter, upper indices, lower indices) of each factor with all its indices, the upper ones first."""
    factors: list[tuple[tuple[str, int, int], list[str]]] = []
    matches = list(_INDEXED.finditer(text))
    for match in matches:
        groups = [(mark, re.findall(r"\\[a-z]+|[a-z]", part)) for mark, part in _INDICES.findall(match[2])]
        upper, lower = ([i for mark, part in groups if mark == each for i in part] for each in "^_")
        factors.append(((match[1], len(upper), len(lower)), upper + lower))
    whole = "".join(match[0] for match in matches) == text
    return factors if whole and len(factors) <= _MAX_TENSORS else None
