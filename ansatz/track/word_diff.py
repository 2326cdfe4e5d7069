"""What differs between two texts, word by word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from ansatz.track.mathematics import FORMULA, has_mathematics

_WORDS = r"\d+|[^\W\d_]+|\s+|."
MAX_WORDS = 2000
"""Of longer texts, only the common beginning and end are found: the time of a comparison grows with their product."""


class Piece(NamedTuple):
    """A part of a text. shared: whether the other text has it too, at the same place."""

    text: str
    shared: bool


def word_diff(before: str, after: str) -> tuple[list[Piece], list[Piece]]:
    """Return both texts in pieces: numbers, words and signs that differ, and what is between them.

    Example: "12 + 3 = 14" and "12 + 3 = 15" give [("12 + 3 = ", shared), ("14", not shared)], and the same with 15. A
    formula that a page sets is one word, as no part of it could be set alone.
    """
    left, right = _split(before), _split(after)
    start = count_common(left, right)
    end = count_common(left[start:][::-1], right[start:][::-1])
    middle_a, middle_b = left[start : len(left) - end], right[start : len(right) - end]
    pieces: tuple[list[Piece], list[Piece]] = ([], [])
    _add(pieces, left[:start], right[:start], shared=True)
    if max(len(middle_a), len(middle_b)) > MAX_WORDS:
        _add(pieces, middle_a, middle_b, shared=False)
    else:
        for kind, i, j, k, m in SequenceMatcher(None, middle_a, middle_b, autojunk=False).get_opcodes():
            _add(pieces, middle_a[i:j], middle_b[k:m], shared=kind == "equal")
    _add(pieces, left[len(left) - end :], right[len(right) - end :], shared=True)
    return pieces


def _split(text: str) -> list[str]:
    words = f"{FORMULA.pattern}|{_WORDS}" if has_mathematics(text) else _WORDS
    return [match[0] for match in re.finditer(words, text, re.DOTALL)]


def count_common(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the length of the common beginning."""
    same = (index for index, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
    return next(same, min(len(left), len(right)))


def _add(pieces: tuple[list[Piece], list[Piece]], left: Sequence[str], right: Sequence[str], *, shared: bool) -> None:
    for side, words in zip(pieces, (left, right), strict=True):
        if not words:
            continue
        if side and side[-1].shared == shared:
            side[-1] = Piece(side[-1].text + "".join(words), shared)
        else:
            side.append(Piece("".join(words), shared))
