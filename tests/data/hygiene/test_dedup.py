from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from ansatz.data.hygiene import dedup as module
from ansatz.data.hygiene.dedup import Dedup, jaccard
from ansatz.errors import ConfigError
from tests.data.hygiene.problems import problem

TRAIN = (
    "A train leaves the old station at noon with 120 people and stops in 5 towns, where 8 people leave it each time."
)


def duplicates(*questions: tuple[str, str], **settings: float) -> list[tuple[str, str] | None]:
    seen = Dedup(**settings)  # type: ignore[arg-type]
    results = [seen.find(problem(text, answer, id=str(i))) for i, (text, answer) in enumerate(questions)]
    return [duplicate and (duplicate.kind, duplicate.of) for duplicate in results]


def test_the_same_text_in_other_typesetting_is_an_exact_duplicate() -> None:
    assert duplicates(("Find $x+1$.", "1"), ("Find $x-1$.", "1"), ("find x + 1", "1")) == [None, None, ("exact", "0")]


def test_an_exact_duplicate_with_another_answer_is_marked() -> None:
    seen = Dedup()
    assert seen.find(problem("Find the sum.", "1", id="first")) is None
    duplicate = seen.find(problem("Find the sum", "2", id="second"))
    assert duplicate == ("exact", "first", 1.0, False)


def test_a_near_duplicate_is_decided_by_its_jaccard_similarity() -> None:
    other = TRAIN.replace("the old station", "an old station")
    left, right = (set(zip(w, w[1:], w[2:], strict=False)) for w in (TRAIN.split(), other.split()))
    by_hand = len(left & right) / len(left | right)
    assert by_hand == pytest.approx(18 / 24)  # 21 runs of three each, three of them changed
    seen = Dedup(threshold=0.75)
    assert seen.find(problem(TRAIN, id="a")) is None
    duplicate = seen.find(problem(other, id="b"))
    assert duplicate == ("near", "a", round(by_hand, 4), True)
    assert duplicates((TRAIN, "1"), (other, "1"), threshold=0.77) == [None, None]
    assert duplicates((TRAIN, "1"), (other, "1"), threshold=0.75, near=False) == [None, None]


def test_other_numbers_or_another_answer_make_another_problem() -> None:
    end = TRAIN + " How many people are left at the end of the whole day?"
    assert duplicates((end, "80"), (end.replace("120", "130"), "80"), threshold=0.6) == [None, None]
    assert duplicates((end, "80"), (end.replace("are left", "have left"), "40"), threshold=0.6) == [None, None]
    assert duplicates((end + " x + 1", "80"), (end + " x - 1", "80"), threshold=0.6) == [None, None]
    assert duplicates((end, "80"), (end.replace("are left", "have left"), "80"), threshold=0.6)[1] == ("near", "0")


def test_stories_of_one_pattern_with_other_numbers_are_not_candidates() -> None:
    seen = Dedup()
    for number in range(50):
        assert seen.find(problem(TRAIN.replace("120", str(number)), str(number))) is None
    asked = problem(TRAIN.replace("120", "999"), "1")
    shingles = module._shingles(asked.question, 3)
    assert seen._bands.rows_with(module._bands(shingles, module.must_be_equal(asked, ("999",)))) == []
    assert len(set(module._bands(shingles)) & set(module._bands(shingles))) == module.BANDS


def test_questions_shorter_than_one_shingle_are_not_near_duplicates() -> None:
    assert duplicates(("What now?", "1"), ("What then?", "1"), ("what now", "1")) == [None, None, ("exact", "0")]


def test_jaccard_of_sets() -> None:
    assert jaccard(np.array([1, 2, 3]), np.array([2, 3, 4])) == 0.5
    assert jaccard(np.array([]), np.array([])) == 0.0


def test_a_shared_band_is_as_likely_as_the_formula_says() -> None:
    rng = np.random.default_rng(0)
    for similarity in (0.5, 0.8):
        hits = 0
        for _ in range(400):
            shared = round(60 * 2 * similarity / (1 + similarity))
            hashes = rng.choice(2**32, 120 - shared, replace=False).astype(np.uint32)
            left, right = hashes[:60], hashes[60 - shared :]
            hits += bool(set(module._bands(left)) & set(module._bands(right)))
        expected = 1 - (1 - similarity**module.BAND_ROWS) ** module.BANDS
        assert hits / 400 == pytest.approx(expected, abs=0.1)


def test_bands_are_the_same_in_every_process() -> None:
    code = "import numpy; from ansatz.data.hygiene.dedup import _bands; print(_bands(numpy.arange(9, dtype='uint32')))"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert there.strip() == str(module._bands(np.arange(9, dtype="uint32")))


@pytest.mark.parametrize("settings", [{"threshold": 0.5}, {"threshold": 1.1}, {"ngram": 0}])
def test_settings_out_of_range_are_named(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=rf"{next(iter(settings))} = .*expected"):
        Dedup(**settings)  # type: ignore[arg-type]
