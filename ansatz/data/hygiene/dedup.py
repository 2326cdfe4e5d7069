"""Finds duplicates: problems whose question occurred before, exactly or nearly.

Exact duplicates have equal `normalize.signature`. Near duplicates have n-gram sets whose Jaccard similarity,
|A and B| / |A or B|, reaches a threshold; in addition, both questions must contain the same numbers and signs and have
the same answer. Without these two conditions "solve 3x+5=20" and "solve 3x-5=20" would be one problem, as would "find
the smallest" and "find the largest".

Candidates come from MinHash signatures cut into bands (Broder 1997, https://doi.org/10.1109/SEQUEN.1997.666900). Two
sets with Jaccard similarity j share a band of 5 with probability 1 - (1 - j^5)^20: 0.998 at 0.77, over 0.999 at 0.8.
The numbers, signs and answer are part of each band's key; without them, a million stories of one pattern would all be
candidates of each other. Each candidate is then compared exactly. All hashes are fixed, so the same file always gives
the same rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ansatz.data.hygiene.buckets import Buckets, mixed
from ansatz.data.hygiene.embeddings import EmbeddingIndex
from ansatz.data.hygiene.normalize import bare_answer, figures_of, ngrams, same_answer, signature
from ansatz.data.keyed_random import KeyedRandom, hash64
from ansatz.errors import ConfigError
from ansatz.types import Problem

BANDS, BAND_ROWS = 20, 5
LOWEST_THRESHOLD = 0.6  # below it too few pairs share a band: 80 % at 0.6, half of them at 0.5


_NO_SHINGLES = np.empty(0, np.uint32)


class Duplicate(NamedTuple):
    """The earlier problem that a problem repeats.

    kind: "exact", "near" or "embedding". similarity: Jaccard, 0 to 1; for "embedding" the cosine.
    """

    kind: str
    of: str
    similarity: float
    same_answer: bool


class Dedup:
    """Remembers all new problems; `find(problem)` returns the earlier problem that it repeats.

    threshold: least Jaccard similarity of two near duplicates (0.6 to 1). ngram: words or signs per
    n-gram. near: False finds exact duplicates only. embeddings: if given, also finds paraphrases. An exact duplicate
    counts even if its answer differs; `same_answer` is then False. Memory: under 1 kB for a problem of 50 words, plus
    0.6 kB with embeddings of 384 dimensions. Raises ConfigError for a setting outside its range.
    """

    def __init__(
        self, *, threshold: float = 0.8, ngram: int = 3, near: bool = True, embeddings: EmbeddingIndex | None = None
    ) -> None:
        if not LOWEST_THRESHOLD <= threshold <= 1:
            raise ConfigError(f"threshold = {threshold}, expected {LOWEST_THRESHOLD} to 1.")
        if ngram < 1:
            raise ConfigError(f"ngram = {ngram}, expected 1 word or more.")
        self._threshold, self._ngram, self._near, self._embeddings = threshold, ngram, near, embeddings
        self._exact: dict[int, int] = {}
        self._ids: list[str] = []
        self._answers: list[str] = []
        self._shingles: list[bytes] = []
        self._bands = Buckets(BANDS)

    def find(self, problem: Problem) -> Duplicate | None:
        """Return the earlier problem that this one repeats; None for a new problem, which is then remembered."""
        key = hash64(signature(problem.dialogue))
        if (index := self._exact.get(key)) is not None:
            return Duplicate("exact", self._ids[index], 1.0, same_answer(self._answers[index], problem.answer))
        figures = figures_of(problem.dialogue)
        shingles = _shingles(problem.dialogue, self._ngram) if self._near else _NO_SHINGLES
        bands = _bands(shingles, must_be_equal(problem, figures))
        if (duplicate := self._find_near_duplicate(shingles, bands)) is not None:
            return duplicate
        if self._embeddings is not None:
            vector = self._embeddings.vector(problem)
            context = must_be_equal(problem, [figure for figure in figures if figure[0].isdigit()])
            if (closest := self._embeddings.closest(vector, context)) is not None:
                return Duplicate("embedding", self._ids[closest[0]], round(closest[1], 4), True)
            self._embeddings.keep(vector, context)
        if self._near:
            self._bands.add(bands)
            self._shingles.append(shingles.tobytes())
        self._exact[key] = len(self._ids)
        self._ids.append(problem.id)
        self._answers.append(problem.answer)
        return None

    def _find_near_duplicate(self, shingles: Any, bands: Any) -> Duplicate | None:
        for index in self._bands.rows_with(bands) if shingles.size else ():
            similarity = jaccard(np.frombuffer(self._shingles[index], np.uint32), shingles)
            if similarity >= self._threshold:
                return Duplicate("near", self._ids[index], round(similarity, 4), True)
        return None


def must_be_equal(problem: Problem, figures: Sequence[str]) -> int:
    """Return a hash of the figures and of the answer without typesetting."""
    return hash64("\0".join([bare_answer(problem.answer), *figures]))


def jaccard(left: Any, right: Any) -> float:
    """Return |A and B| / |A or B| of two arrays of distinct hashes; 0 if one is empty."""
    shared = np.intersect1d(left, right, assume_unique=True).size
    return shared / (left.size + right.size - shared) if shared else 0.0


def _shingles(text: str, ngram: int) -> Any:
    """Return the distinct hashes of the n-grams, sorted; empty for a text that is shorter than one n-gram."""
    grams = ngrams(signature(text).split(), ngram)
    return np.unique(np.fromiter((zlib.crc32(gram.encode()) for gram in grams), np.uint32, len(grams)))


def _draw_odd_numbers(name: str, count: int) -> Any:
    rng = KeyedRandom("minhash", name)
    return np.array([rng.between(0, 2**52) * 2 + 1 for _ in range(count)], np.uint64)


_FACTORS, _SHIFTS = _draw_odd_numbers("factors", BANDS * BAND_ROWS), _draw_odd_numbers("shifts", BANDS * BAND_ROWS)
_MIX, _BAND = _draw_odd_numbers("mix", BAND_ROWS), _draw_odd_numbers("band", BANDS)


def _bands(shingles: Any, context: int = 0) -> Any:
    """Return one 64-bit key for each band of the MinHash signature, mixed with `context`.

    Hash i of x is the upper half of a_i x + b_i mod 2^64. Without shingles the keys depend only on the context.
    """
    hashed = (shingles.astype(np.uint64)[:, None] * _FACTORS + _SHIFTS) >> np.uint64(32)
    smallest = hashed.min(axis=0, initial=2**32).reshape(BANDS, BAND_ROWS)
    return mixed((smallest * _MIX).sum(axis=1, dtype=np.uint64) + _BAND, context)
