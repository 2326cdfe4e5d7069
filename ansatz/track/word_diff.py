"""The differences between two texts, word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ansatz.track.mathematics import FORMULA, has_mathematics

_WORDS = r"\d+|[^\W\d_]+|\s+|."
MAX_WORDS = 4000
"""Of longer texts, only the common beginning and end are found. A comparison of two of this length takes 40 ms."""


class Piece(NamedTuple):
    """A part of a text. shared: whether the other text has it too, at the same place."""

    text: str
    shared: bool


def word_diff(before: str, after: str) -> tuple[list[Piece], list[Piece]]:
    """Return both texts in pieces: numbers, words and signs that differ, and the shared text between them.

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
        for shared, words in groupby(_align(middle_a, middle_b), key=lambda pair: None not in pair):
            sides = zip(*words, strict=True)
            _add(pieces, *([word for word in side if word is not None] for side in sides), shared=shared)
    _add(pieces, left[len(left) - end :], right[len(right) - end :], shared=True)
    return pieces


def _split(text: str) -> list[str]:
    words = f"{FORMULA.pattern}|{_WORDS}" if has_mathematics(text) else _WORDS
    return [match[0] for match in re.finditer(words, text, re.DOTALL)]


def _align(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str | None, str | None]]:
    """Yield the words of both texts in order: a longest common subsequence in pairs, the other words with None.

    Of several such subsequences, it is one with few gaps.
    """
    rows, columns = _gains(left, right), _gains(right, left)
    pairs = list[tuple[str | None, str | None]]()
    i, j, paired = len(left), len(right), False
    while i and j:
        same = left[i - 1] == right[j - 1]
        if same and (paired or not (rows[i] >> (j - 1) & 1 or columns[j] >> (i - 1) & 1)):
            i, j, paired = i - 1, j - 1, True
            pairs.append((left[i], right[j]))
            continue
        paired = False
        if rows[i] >> (j - 1) & 1:
            j -= 1
            pairs.append((None, right[j]))
        else:
            i -= 1
            pairs.append((left[i], None))
    yield from ((word, None) for word in left[:i])
    yield from ((None, word) for word in right[:j])
    yield from reversed(pairs)


def _gains(left: Sequence[str], right: Sequence[str]) -> list[int]:
    """Return a row of bits for each beginning of `left`, with a bit for each word of `right`: 0 where the longest
    common subsequence is longer with this word than without it.

    A row takes the same time whatever the words are (Hyyro, Bit-parallel LCS-length computation revisited, 2004).
    """
    places = dict[str, int]()
    for index, word in enumerate(right):
        places[word] = places.get(word, 0) | 1 << index
    everywhere = (1 << len(right)) - 1
    rows = [everywhere]
    for word in left:
        row, at = rows[-1], places.get(word, 0)
        rows.append((row + (row & at) | row & ~at) & everywhere)
    return rows


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
