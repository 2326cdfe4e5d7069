"""Repeated problems: the same question once more, or nearly so.

Exact: equal `wording.signature`. Near: the sets of its n-grams overlap (Jaccard, |A and B| / |A or B|) by a threshold,
and both questions hold the same numbers and signs and have the same answer. Without these two conditions "solve
3x+5=20" and "solve 3x-5=20" would be one problem, as would "find the smallest" and "find the largest".

Candidates come from MinHash signatures cut into bands (Broder 1997, https://doi.org/10.1109/SEQUEN.1997.666900): two
sets of Jaccard j share a band of 5 with probability 1 - (1 - j^5)^20, that is 0.998 at 0.77 and over 0.999 at 0.8.
Each candidate is then compared exactly. All hashes are fixed, so the same file always gives the same rows.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np

from ansatz.data.draw import Draw
from ansatz.data.hygiene.wording import figures_of, ngrams, same_answer, signature
from ansatz.errors import ConfigError
from ansatz.types import Problem

BANDS, BAND_ROWS = 20, 5
LOWEST_THRESHOLD = 0.6  # under it a band is shared too seldom: 0.8 of the time at 0.6, half of it at 0.5


class Twin(NamedTuple):
    """An earlier problem that this one repeats. kind: "exact" or "near"; similarity: Jaccard, 0 to 1."""

    kind: str
    of: str
    similarity: float
    same_answer: bool


class _Kept(NamedTuple):
    id: str
    answer: str
    figures: tuple[str, ...]
    shingles: Any  # sorted 32-bit hashes of its n-grams


class Dedup:
    """Remembers the problems shown to it: `twin(problem)` is the earlier one that it repeats, None for a new problem.

    threshold: Jaccard from which a problem is a near twin (0.6 to 1). ngram: words or signs of a shingle. near: False
    for exact twins alone. An exact twin counts even where its answer is another, which `same_answer` then says. Memory:
    about 3 kB a problem. ConfigError for a setting out of its range.
    """

    def __init__(self, *, threshold: float = 0.8, ngram: int = 3, near: bool = True) -> None:
        if not LOWEST_THRESHOLD <= threshold <= 1:
            raise ConfigError(f"threshold = {threshold}, expected {LOWEST_THRESHOLD} to 1.")
        if ngram < 1:
            raise ConfigError(f"ngram = {ngram}, expected 1 word or more.")
        self._threshold, self._ngram, self._near = threshold, ngram, near
        self._exact: dict[bytes, int] = {}
        self._bands: dict[tuple[int, int], list[int]] = {}
        self._kept: list[_Kept] = []

    def twin(self, problem: Problem) -> Twin | None:
        key = signature(problem.question).encode()
        if key in self._exact:
            kept = self._kept[self._exact[key]]
            return Twin("exact", kept.id, 1.0, same_answer(kept.answer, problem.answer))
        shingles = _shingles(problem.question, self._ngram) if self._near else np.empty(0, np.uint32)
        bands = _bands(shingles) if shingles.size else []
        figures = figures_of(problem.question)
        for place in sorted({place for band in bands for place in self._bands.get(band, ())}):
            kept = self._kept[place]
            if kept.figures == figures and same_answer(kept.answer, problem.answer):
                similarity = jaccard(kept.shingles, shingles)
                if similarity >= self._threshold:
                    return Twin("near", kept.id, round(similarity, 4), True)
        self._exact[key] = len(self._kept)
        for band in bands:
            self._bands.setdefault(band, []).append(len(self._kept))
        self._kept.append(_Kept(problem.id, problem.answer, figures, shingles))
        return None


def jaccard(left: Any, right: Any) -> float:
    """|A and B| / |A or B| of two arrays of distinct hashes; 0 where one is empty."""
    shared = np.intersect1d(left, right, assume_unique=True).size
    return shared / (left.size + right.size - shared) if shared else 0.0


def _shingles(text: str, ngram: int) -> Any:
    """Distinct hashes of the n-grams, sorted; of a text shorter than one, none."""
    grams = ngrams(signature(text).split(), ngram)
    return np.unique(np.fromiter((zlib.crc32(gram.encode()) for gram in grams), np.uint32, len(grams)))


def _odd_numbers(name: str) -> Any:
    draw = Draw("minhash", name)
    return np.array([draw.between(0, 2**52) * 2 + 1 for _ in range(BANDS * BAND_ROWS)], np.uint64)


_FACTORS, _SHIFTS = _odd_numbers("factors"), _odd_numbers("shifts")


def _bands(shingles: Any) -> list[tuple[int, int]]:
    """The MinHash signature's bands, each as (band, hash). Hash i of x is the upper half of a_i x + b_i mod 2^64."""
    hashed = (shingles.astype(np.uint64)[:, None] * _FACTORS + _SHIFTS) >> np.uint64(32)
    smallest = hashed.min(axis=0).astype(np.uint32).reshape(BANDS, BAND_ROWS)
    return [(band, zlib.crc32(rows.tobytes())) for band, rows in enumerate(smallest)]
