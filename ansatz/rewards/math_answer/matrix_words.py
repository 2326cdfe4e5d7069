"""Products of matrices that are called by capital letters, if some are inverted or transposed: their order matters."""

from __future__ import annotations

import itertools
import re

_TOKEN = re.compile(
    r"(?:\s|\\left(?![a-z])|\\right(?![a-z])|\\[,;!]|\\cdot(?![a-z]))*"
    r"(?:([A-Z]|\\(?:Sigma|Lambda|Phi|Psi)(?![a-z]))|(\()|(\))|\^\s?\{?\s?(-1|-T|T|\\top|\\intercal)\s?\}?)\s*"
)
MAX_LENGTH = 200
Factor = tuple[str, bool, bool]
"""A letter, whether it is inverted, and whether it is transposed."""


def compare_products(gold: str, answer: str) -> bool | None:
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
        if match is None or len(text) > MAX_LENGTH:
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
