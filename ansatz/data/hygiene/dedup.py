"""Repeated problems: the same question once more, or nearly so.

Exact: equal `wording.signature`. Near: the sets of its n-grams overlap (Jaccard, |A and B| / |A or B|) by a threshold,
and both questions hold the same numbers and signs and have the same answer. Without these two conditions "solve
3x+5=20" and "solve 3x-5=20" would be one problem, as would "find the smallest" and "find the largest".

Candidates come from MinHash signatures cut into bands (Broder 1997, https://doi.org/10.1109/SEQUEN.1997.666900): two
sets of Jaccard j share a band of 5 with probability 1 - (1 - j^5)^20, that is 0.998 at 0.77 and over 0.999 at 0.8.
What must be equal is part of each band's key: without it, a million stories of one pattern would all be candidates of
one another. Each candidate is then compared exactly. All hashes are fixed, so the same file always gives the same rows.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ansatz.data.hygiene.buckets import Buckets, mixed
from ansatz.data.hygiene.embeddings import Embedded
from ansatz.data.hygiene.wording import bare_answer, figures_of, ngrams, same_answer, signature
from ansatz.data.keyed_random import KeyedRandom
from ansatz.errors import ConfigError
from ansatz.types import Problem

BANDS, BAND_ROWS = 20, 5
LOWEST_THRESHOLD = 0.6  # under it a band is shared too seldom: 0.8 of the time at 0.6, half of it at 0.5


_NO_SHINGLES = np.empty(0, np.uint32)


class Twin(NamedTuple):
    """An earlier problem that this one repeats. kind: "exact", "near" or "embedding"; similarity: Jaccard, 0 to 1, of
    the last kind the cosine."""

    kind: str
    of: str
    similarity: float
    same_answer: bool


class Dedup:
    """Remembers the problems shown to it: `twin(problem)` is the earlier one that it repeats, None for a new problem.

    threshold: Jaccard from which a problem is a near twin (0.6 to 1). ngram: words or signs of a shingle. near: False
    for exact twins alone. embedded: with it twins in other words too. An exact twin counts even where its answer is
    another, which `same_answer` then says. Memory: under 1 kB for a problem of 50 words, and 0.6 kB more with
    embeddings of 384 dimensions. ConfigError for a setting out of its range.
    """

    def __init__(
        self, *, threshold: float = 0.8, ngram: int = 3, near: bool = True, embedded: Embedded | None = None
    ) -> None:
        if not LOWEST_THRESHOLD <= threshold <= 1:
            raise ConfigError(f"threshold = {threshold}, expected {LOWEST_THRESHOLD} to 1.")
        if ngram < 1:
            raise ConfigError(f"ngram = {ngram}, expected 1 word or more.")
        self._threshold, self._ngram, self._near, self._embedded = threshold, ngram, near, embedded
        self._exact: dict[int, int] = {}
        self._ids: list[str] = []
        self._answers: list[str] = []
        self._shingles: list[bytes] = []
        self._bands = Buckets(BANDS)

    def twin(self, problem: Problem) -> Twin | None:
        key = hash64(signature(problem.question))
        if (place := self._exact.get(key)) is not None:
            return Twin("exact", self._ids[place], 1.0, same_answer(self._answers[place], problem.answer))
        figures = figures_of(problem.question)
        shingles = _shingles(problem.question, self._ngram) if self._near else _NO_SHINGLES
        bands = _bands(shingles, must_be_equal(problem, figures))
        if (twin := self._near_twin(shingles, bands)) is not None:
            return twin
        if self._embedded is not None:
            vector = self._embedded.vector(problem)
            context = must_be_equal(problem, [figure for figure in figures if figure[0].isdigit()])
            if (found := self._embedded.closest(vector, context)) is not None:
                return Twin("embedding", self._ids[found[0]], round(found[1], 4), True)
            self._embedded.keep(vector, context)
        if self._near:
            self._bands.add(bands)
            self._shingles.append(shingles.tobytes())
        self._exact[key] = len(self._ids)
        self._ids.append(problem.id)
        self._answers.append(problem.answer)
        return None

    def _near_twin(self, shingles: Any, bands: Any) -> Twin | None:
        for place in self._bands.rows_with(bands) if shingles.size else ():
            similarity = jaccard(np.frombuffer(self._shingles[place], np.uint32), shingles)
            if similarity >= self._threshold:
                return Twin("near", self._ids[place], round(similarity, 4), True)
        return None


def must_be_equal(problem: Problem, figures: Sequence[str]) -> int:
    """A hash of the figures and the answer, typesetting aside."""
    return hash64("\0".join([bare_answer(problem.answer), *figures]))


def hash64(text: str) -> int:
    """Of two million texts, two have one hash once in ten million runs."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big")


def jaccard(left: Any, right: Any) -> float:
    """|A and B| / |A or B| of two arrays of distinct hashes; 0 where one is empty."""
    shared = np.intersect1d(left, right, assume_unique=True).size
    return shared / (left.size + right.size - shared) if shared else 0.0


def _shingles(text: str, ngram: int) -> Any:
    """Distinct hashes of the n-grams, sorted; of a text shorter than one, none."""
    grams = ngrams(signature(text).split(), ngram)
    return np.unique(np.fromiter((zlib.crc32(gram.encode()) for gram in grams), np.uint32, len(grams)))


def _odd_numbers(name: str, count: int) -> Any:
    draw = KeyedRandom("minhash", name)
    return np.array([draw.between(0, 2**52) * 2 + 1 for _ in range(count)], np.uint64)


_FACTORS, _SHIFTS = _odd_numbers("factors", BANDS * BAND_ROWS), _odd_numbers("shifts", BANDS * BAND_ROWS)
_MIX, _BAND = _odd_numbers("mix", BAND_ROWS), _odd_numbers("band", BANDS)


def _bands(shingles: Any, context: int = 0) -> Any:
    """Of the MinHash signature, a 64-bit key for each band, in which `context` is mixed.

    Hash i of x is the upper half of a_i x + b_i mod 2^64. No shingles: keys of the context alone.
    """
    hashed = (shingles.astype(np.uint64)[:, None] * _FACTORS + _SHIFTS) >> np.uint64(32)
    smallest = hashed.min(axis=0, initial=2**32).reshape(BANDS, BAND_ROWS)
    return mixed((smallest * _MIX).sum(axis=1, dtype=np.uint64) + _BAND, context)
