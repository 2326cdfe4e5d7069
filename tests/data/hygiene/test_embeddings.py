from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ansatz.data.hygiene import embeddings as module
from ansatz.data.hygiene.dedup import Dedup
from ansatz.data.hygiene.embeddings import BANDS, BATCH, PLANES, EmbeddingIndex, cosine, sentence_encoder
from ansatz.errors import ConfigError, MissingExtraError
from ansatz.types import Problem
from tests.data.hygiene.problems import problem

FAMILIES = {"Amy": 0, "Ben": 1}


def encode(texts: Sequence[str]) -> list[list[float]]:
    """One direction a name, a little turned by the length of the text."""
    return [[float(text.startswith(name)) for name in FAMILIES] + [len(text) / 1000] for text in texts]


def kinds(*problems: Problem, near: bool = False, threshold: float = 0.95) -> list[tuple[str, str] | None]:
    seen = Dedup(near=near, embeddings=EmbeddingIndex(encode, threshold=threshold))
    results = [seen.find(row) for row in problems]
    return [duplicate and (duplicate.kind, duplicate.of) for duplicate in results]


def test_a_paraphrase_with_the_same_numbers_and_answer_is_a_duplicate() -> None:
    first = problem("Amy has 3 pears and eats 1. How many are left?", "2", id="first")
    other_words = problem("Amy: of 3 pears, 1 is gone; what remains?", "2", id="other words")
    assert kinds(first, other_words) == [None, ("embedding", "first")]
    assert kinds(first, problem("Amy: of 4 pears, 1 is gone; what remains?", "2")) == [None, None]
    assert kinds(first, problem("Amy: of 3 pears, 1 is gone; what remains?", "3")) == [None, None]
    assert kinds(first, problem("Ben: of 3 pears, 1 is gone; what remains?", "2")) == [None, None]
    assert kinds(first, problem("Amy: 3 pears - 1 pear = what?", "2"))[1] == ("embedding", "first")
    assert kinds(first, other_words, threshold=1.0) == [None, None]


def test_exact_and_near_duplicates_are_reported_as_such() -> None:
    text = "Amy walks to the old station at noon with all of her 12 friends and takes the train to the sea."
    results = kinds(problem(text, id="a"), problem(text), problem(text.replace("the sea", "our sea")), near=True)
    assert results == [None, ("exact", "a"), ("near", "a")]


def test_a_batch_is_encoded_before_its_first_pair_and_the_order_is_kept() -> None:
    asked: list[int] = []

    def counting(texts: Sequence[str]) -> list[list[float]]:
        asked.append(len(texts))
        return encode(texts)

    embedded = EmbeddingIndex(counting)
    seen = Dedup(near=False, embeddings=embedded)
    texts = [f"Amy has {i // 2} pears" + "." * (i // 2) for i in range(2 * BATCH + 10)]
    pairs = [(i, problem(text, "1", id=str(i))) for i, text in enumerate(texts)]
    out = [(pair[0], seen.find(pair[1])) for pair in embedded.encode_ahead(pairs)]
    assert asked == [BATCH, BATCH, 10]
    assert [place for place, _ in out] == list(range(len(pairs)))
    assert all((duplicate is None) == (place % 2 == 0) for place, duplicate in out)
    vectors = np.array(encode(texts[::2]), np.float32)  # duplicates asked for none
    assert embedded._vectors == [module._quantize(vector).tobytes() for vector in vectors]


def test_the_cosine_of_quantized_vectors_is_close_to_the_true_cosine() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        left = rng.standard_normal(384).astype(np.float32)
        right = left + rng.standard_normal(384).astype(np.float32) * 0.4
        true = float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))
        assert cosine(module._quantize(left), module._quantize(right)) == pytest.approx(true, abs=0.002)
    assert cosine(np.zeros(3, np.int8), module._quantize(np.ones(3, np.float32))) == 0.0


def test_planes_separate_two_vectors_as_often_as_the_formula_says() -> None:
    rng = np.random.default_rng(0)
    hits = bands = 0
    angle = math.acos(0.9)
    for _ in range(200):
        left, right = np.linalg.qr(rng.standard_normal((64, 2)))[0].T.astype(np.float32)
        turned = math.cos(angle) * left + math.sin(angle) * right
        shared = module._bands(module._quantize(left), 7) == module._bands(module._quantize(turned), 7)
        hits, bands = hits + int(shared.sum()), bands + BANDS
        assert not set(module._bands(module._quantize(left), 7)) & set(module._bands(module._quantize(left), 8))
    assert hits / bands == pytest.approx((1 - angle / math.pi) ** PLANES, abs=0.03)


@pytest.mark.parametrize("threshold", [0.8, 1.1])
def test_a_threshold_out_of_range_is_named(threshold: float) -> None:
    with pytest.raises(ConfigError, match=rf"min_cosine = {threshold}, expected 0.85 to 1"):
        EmbeddingIndex(encode, threshold=threshold)


def test_without_a_folder_or_the_package_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="is not a folder; expected one with a sentence-transformers model"):
        sentence_encoder(str(tmp_path / "none"))
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"'sentence-transformers'.* -m pip install .*sentence-transformers"):
        sentence_encoder(str(tmp_path))


def test_a_model_can_be_a_folder_or_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[str, str | None]] = []

    class Package:
        class SentenceTransformer:
            def __init__(self, name: str, revision: str | None = None) -> None:
                loaded.append((name, revision))

    monkeypatch.setitem(sys.modules, "sentence_transformers", Package)
    for name in (str(tmp_path), "us/minilm", "us/minilm@v2"):
        sentence_encoder(name)
    assert loaded == [(str(tmp_path), None), ("us/minilm", None), ("us/minilm", "v2")]
