from __future__ import annotations

from pathlib import Path

import pytest

from ansatz.data.formats import open_rows
from ansatz.data.hygiene.decontaminate import BenchmarkTexts
from ansatz.data.hygiene.normalize import normalized_words
from ansatz.data.row_problems import RowSettings, rows_with_problems
from ansatz.errors import ConfigError
from ansatz.types import Problem
from tests.data.hygiene.problems import problem

SHARED = Path(__file__).parents[4] / "shared" / "data"
TEN = "one two three four five six seven eight nine ten"
TEST = problem(f"{TEN} eleven twelve", "7", id="t")


def test_ten_consecutive_words_are_an_overlap_and_nine_are_not() -> None:
    tests = BenchmarkTexts([TEST])
    overlap = tests.overlap(problem(f"Say: One, two -- {TEN[8:]}! and more words", "$7$"))
    assert overlap is not None
    assert (overlap.kind, overlap.test, overlap.text, overlap.same_answer) == ("ngram", "t", TEN, True)
    assert overlap.shared_frac == pytest.approx(1 / 3, abs=1e-4)  # one of the three runs of ten in twelve words
    nine = TEN.rpartition(" ")[0]
    assert tests.overlap(problem(f"{nine} other {nine} words")) is None


def test_a_text_of_fewer_than_ten_words_must_match_exactly() -> None:
    tests = BenchmarkTexts([problem("What is the sum?", "3", id="short"), problem("Why so?", id="too short")])
    overlap = tests.overlap(problem("what is  the sum"))
    assert overlap is not None
    assert (overlap.kind, overlap.test, overlap.shared_frac, overlap.same_answer) == ("exact", "short", 1.0, False)
    assert tests.overlap(problem("What is the sum of all?")) is None
    assert tests.overlap(problem("Why so?")) is None
    assert (len(tests), tests.too_short) == (2, 1)
    assert tests.overlap(problem(f"what is the sum {TEN}")) is None


def test_the_test_problem_that_shares_most_is_named() -> None:
    tests = BenchmarkTexts([problem(f"{TEN} a b c", id="less"), problem(f"{TEN} eleven", id="more")])
    overlap = tests.overlap(problem(f"{TEN} eleven"))
    assert overlap is not None
    assert (overlap.test, overlap.shared_frac) == ("more", 1.0)


def test_a_minimum_fraction_ignores_small_overlaps() -> None:
    tests = BenchmarkTexts([TEST])
    assert tests.overlap(problem(TEN), min_frac=0.34) is None
    assert tests.overlap(problem(TEN), min_frac=0.33) is not None


def test_an_ngram_of_fewer_than_four_words_is_refused() -> None:
    with pytest.raises(ConfigError, match="ngram = 3, expected 4 words or more"):
        BenchmarkTexts([], ngram=3)


def read(name: str) -> list[Problem]:
    return [row for _, row in rows_with_problems(open_rows(SHARED / name), RowSettings(), source=name)]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public data files (../shared/data) are not here")
def test_the_training_part_of_math_against_the_usual_tests() -> None:
    pytest.importorskip("zstandard")
    names = ["math500/test.jsonl", "aime24/test.jsonl", "aime25/test.jsonl", "amc23/test.jsonl"]
    tests = [row for name in names for row in read(name)]
    assert len(tests) == 600
    texts = BenchmarkTexts(tests)
    # Every test problem is overlap in itself, and all of MATH-500 in the file that it was taken from.
    for row in tests:
        overlap = texts.overlap(row)
        assert overlap is not None, row.id
        assert (overlap.shared_frac, overlap.same_answer) == (1.0, True), row.id
    ids = {
        overlap.test
        for row in read("math/test.jsonl")
        if (overlap := texts.overlap(row)) and overlap.shared_frac == 1.0
    }
    assert len({i for i in ids if i.startswith("math500")}) > 490
    # MATH's own split is clean but for set phrases and series of one problem with other numbers.
    rows = read("math/train.jsonl.zst")
    dropped = [overlap for row in rows if (overlap := texts.overlap(row))]
    assert len(rows) == 7500
    assert 300 < len(dropped) < 600
    copies = [row for row in dropped if row.shared_frac > 0.9 and row.same_answer]
    assert len(copies) <= 3
    # By brute force: what is kept shares no ten words with the short tests.
    texts_of_tests = [" " + " ".join(normalized_words(row.question)) + " " for row in tests[500:]]
    for row in rows[::25]:
        words = normalized_words(row.question)
        runs = [f" {' '.join(words[i : i + 10])} " for i in range(len(words) - 9)]
        shared = any(run in text for run in runs for text in texts_of_tests)
        assert not shared or texts.overlap(row) is not None, row.id
