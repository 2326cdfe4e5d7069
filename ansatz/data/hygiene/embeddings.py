"""Finds paraphrased problems by the cosine similarity of their embeddings.

Embeddings hardly distinguish numbers, and in mathematics a text that differs in one number is another problem. So two
paraphrases must also contain the same numbers in digits and have the same answer. Candidates come from random
hyperplanes (Charikar 2002, https://doi.org/10.1145/509907.509965): two vectors at angle t lie on the same side of a
plane with probability 1 - t / pi. With 24 bands of 10 planes, a pair with cosine 0.9 is found with probability 0.997,
and one with 0.95 with probability 0.9999. Numbers and answer are part of each band's key, and each candidate is
compared exactly.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ansatz.data.files import missing_extra
from ansatz.data.hygiene.buckets import Buckets, mixed
from ansatz.errors import ConfigError
from ansatz.hub import hub_name
from ansatz.json_text import parse_json
from ansatz.types import Problem

BANDS, PLANES = 24, 10
LOWEST_COSINE = 0.85  # found with probability 0.976
BATCH = 256  # texts encoded at once

Encode = Callable[[Sequence[str]], Any]
"""Texts -> vectors [texts, dimensions]; the vectors need not be normalised."""
Pair = TypeVar("Pair", bound=tuple[Any, Problem])


class EmbeddingIndex:
    """The vectors of the problems that were kept, with 8 bits per dimension. Cosines are accurate to 0.01.

    threshold: least cosine of two paraphrases (0.85 to 1). Raises ConfigError outside this range.
    """

    def __init__(self, encode: Encode, *, threshold: float = 0.95) -> None:
        if not LOWEST_COSINE <= threshold <= 1:
            raise ConfigError(f"min_cosine = {threshold}, expected {LOWEST_COSINE} to 1.")
        self._encode, self._threshold = encode, threshold
        self._ahead: deque[tuple[str, Any]] = deque()
        self._table = Buckets(BANDS)
        self._vectors: list[bytes] = []

    def encode_ahead(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs unchanged. The questions of a batch are encoded before its first pair is yielded."""
        rest = iter(pairs)
        while batch := list(islice(rest, BATCH)):
            questions = [problem.dialogue for _, problem in batch]
            self._ahead = deque(zip(questions, np.asarray(self._encode(questions), np.float32), strict=True))
            yield from batch

    def vector(self, problem: Problem) -> Any:
        """Return the vector of the problem that `encode_ahead` yielded last, or of any other problem."""
        while self._ahead:  # the questions in between were duplicates and needed no vector
            question, vector = self._ahead.popleft()
            if question == problem.dialogue:
                return _quantize(vector)
        return _quantize(np.asarray(self._encode([problem.dialogue]), np.float32)[0])

    def closest(self, vector: Any, context: int) -> tuple[int, float] | None:
        """Return (index, cosine) of the first kept problem, in the order of keeping, that reaches the threshold.

        context: a hash of the values that must be equal.
        """
        for index in self._table.rows_with(_bands(vector, context)):
            similarity = cosine(np.frombuffer(self._vectors[index], np.int8), vector)
            if similarity >= self._threshold:
                return index, similarity
        return None

    def keep(self, vector: Any, context: int) -> None:
        self._table.add(_bands(vector, context))
        self._vectors.append(vector.tobytes())


def cosine(left: Any, right: Any) -> float:
    """Return the cosine of two vectors of small integers; 0 if one of them is 0."""
    left, right = left.astype(np.float32), right.astype(np.float32)
    size = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right) / size if size else 0.0


def sentence_encoder(name: str) -> Encode:
    """Return the encoder in a folder that sentence-transformers wrote, or of the hub. Raise ConfigError if it does not
    load; raise MissingExtraError without the package."""
    parts = hub_name(name)
    if parts is None and not Path(name).is_dir():
        raise ConfigError(
            f"--embeddings = {name!r} is not a folder; expected one with a sentence-transformers model, or the name of "
            "such a model on the hub."
        )
    try:
        package: Any = importlib.import_module("sentence_transformers")
    except ImportError as error:
        missing_extra("dedup by embeddings", "sentence-transformers", "embeddings", error)
    try:
        if parts is None:
            _check_modules(Path(name))
            model = package.SentenceTransformer(name)
        else:
            model = package.SentenceTransformer(parts.repository, revision=parts.revision)
    except ConfigError:
        raise
    except Exception as error:  # each model format has its own errors
        raise ConfigError(
            f"--embeddings = {name!r} is not a model that sentence-transformers can load "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). Choose another one."
        ) from error
    return lambda texts: model.encode(list(texts), show_progress_bar=False)


def _check_modules(folder: Path) -> None:
    """Raise ConfigError for a model with parts of another package: sentence-transformers would import them."""
    path = folder / "modules.json"
    parts: Any = parse_json(path.read_bytes()) if path.is_file() else []
    kinds = [str(part.get("type")) if isinstance(part, Mapping) else repr(part) for part in parts]
    if foreign := [kind for kind in kinds if not kind.startswith("sentence_transformers.")]:
        raise ConfigError(
            f"--embeddings = {str(folder)!r}: modules.json names {foreign[0]!r:.80}, which is not part of "
            "sentence-transformers and would be imported. Choose another model."
        )


def _quantize(vector: Any) -> Any:
    largest = float(np.abs(vector).max(initial=0.0))
    return np.round(vector * (127 / largest) if largest else vector).astype(np.int8)


def _bands(vector: Any, context: int) -> Any:
    """Return a 64-bit key for each band: the sides of its planes that the vector lies on."""
    sides = (_planes(len(vector)) @ vector.astype(np.float32) > 0).reshape(BANDS, PLANES)
    bands = np.arange(BANDS, dtype=np.uint64) << np.uint64(PLANES)
    return mixed(bands + sides @ (1 << np.arange(PLANES, dtype=np.uint64)), context)


@cache
def _planes(dimensions: int) -> Any:
    return np.random.default_rng(0).standard_normal((BANDS * PLANES, dimensions), dtype=np.float32)
