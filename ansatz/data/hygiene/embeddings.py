"""Repeated problems in other words: found by the cosine of their embeddings.

An embedding hardly sees a number, and in mathematics a text that differs in one number is another problem. So the two
must have the same numbers in figures and the same answer as well. Candidates come from random hyperplanes (Charikar
2002, https://doi.org/10.1145/509907.509965): two vectors at the angle t lie on one side of a plane with probability
1 - t / pi. With 24 bands of 10 planes a cosine of 0.9 is found with probability 0.997, one of 0.95 with 0.9999. Numbers
and answer are part of each band's key, and each candidate is compared.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ansatz.data.files import missing_extra
from ansatz.data.hygiene.buckets import Buckets, mixed
from ansatz.errors import ConfigError
from ansatz.types import Problem

BANDS, PLANES = 24, 10
LOWEST_COSINE = 0.85  # found with probability 0.976
BATCH = 256  # texts that are encoded at once

Encode = Callable[[Sequence[str]], Any]
"""Texts -> [texts, dimensions], of any length each."""
Pair = TypeVar("Pair", bound=tuple[Any, Problem])


class Embedded:
    """The vectors of the problems that were kept, 8 bits a dimension: (a . b) / (|a| |b|) is off by under 0.01.

    threshold: cosine from which a problem is the same in other words (0.85 to 1). ConfigError for one out of its range.
    """

    def __init__(self, encode: Encode, *, threshold: float = 0.95) -> None:
        if not LOWEST_COSINE <= threshold <= 1:
            raise ConfigError(f"min_cosine = {threshold}, expected {LOWEST_COSINE} to 1.")
        self._encode, self._threshold = encode, threshold
        self._ahead: deque[tuple[str, Any]] = deque()
        self._table = Buckets(BANDS)
        self._kept: list[bytes] = []

    def reading_ahead(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs as they are; a batch of their questions is encoded before its first is given out."""
        rest = iter(pairs)
        while batch := list(islice(rest, BATCH)):
            questions = [problem.question for _, problem in batch]
            self._ahead = deque(zip(questions, np.asarray(self._encode(questions), np.float32), strict=True))
            yield from batch

    def vector(self, problem: Problem) -> Any:
        """Of the problem that was given out last, or of one that came from elsewhere."""
        while self._ahead:  # those in between were told as twins without it
            question, vector = self._ahead.popleft()
            if question == problem.question:
                return _small(vector)
        return _small(np.asarray(self._encode([problem.question]), np.float32)[0])

    def closest(self, vector: Any, context: int) -> tuple[int, float] | None:
        """The first kept problem that is near enough, by the order in which they were kept, and its cosine.

        context: a hash of what must be equal.
        """
        for place in self._table.rows_with(_bands(vector, context)):
            found = cosine(np.frombuffer(self._kept[place], np.int8), vector)
            if found >= self._threshold:
                return place, found
        return None

    def keep(self, vector: Any, context: int) -> None:
        self._table.add(_bands(vector, context))
        self._kept.append(vector.tobytes())


def cosine(left: Any, right: Any) -> float:
    """Of two vectors of small whole numbers; 0 where one is 0."""
    left, right = left.astype(np.float32), right.astype(np.float32)
    size = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right) / size if size else 0.0


def sentence_encoder(folder: str) -> Encode:
    """The encoder in a folder that sentence-transformers wrote. ConfigError where there is none that loads;
    MissingExtraError without the package."""
    if not Path(folder).is_dir():
        raise ConfigError(f"--embeddings = {folder!r} is no folder, expected one with a sentence-transformers model.")
    try:
        package: Any = importlib.import_module("sentence_transformers")
    except ImportError as error:
        missing_extra("dedup by embeddings", "sentence-transformers", "embeddings", error)
    try:
        model = package.SentenceTransformer(folder)
    except Exception as error:  # each format has errors of its own
        raise ConfigError(
            f"--embeddings = {folder!r} holds no model that sentence-transformers loads "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). Give another folder."
        ) from error
    return lambda texts: model.encode(list(texts), show_progress_bar=False)


def _small(vector: Any) -> Any:
    largest = float(np.abs(vector).max(initial=0.0))
    return np.round(vector * (127 / largest) if largest else vector).astype(np.int8)


def _bands(vector: Any, context: int) -> Any:
    """A 64-bit key a band: on which side of its planes the vector lies."""
    sides = (_planes(len(vector)) @ vector.astype(np.float32) > 0).reshape(BANDS, PLANES)
    places = np.arange(BANDS, dtype=np.uint64) << np.uint64(PLANES)
    return mixed(places + sides @ (1 << np.arange(PLANES, dtype=np.uint64)), context)


@cache
def _planes(dimensions: int) -> Any:
    return np.random.default_rng(0).standard_normal((BANDS * PLANES, dimensions), dtype=np.float32)
