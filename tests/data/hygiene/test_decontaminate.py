from __future__ import annotations

import importlib.util
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansatz.data.choices import REQUEST
from ansatz.data.formats import open_rows
from ansatz.data.hygiene.decontaminate import BenchmarkTexts, NgramTexts, RowOverlap, numbers_frac
from ansatz.data.row_problems import RowSettings, rows_with_problems
from ansatz.errors import ConfigError
from ansatz.types import Problem
from tests.data.hygiene.problems import problem

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "data"
PHRASE = "The answer can be written as m over n where m and n are relatively prime positive integers find m plus n"
TEST = problem(
    "A beekeeper in Ljubljana fills 17 wooden crates with 23 jars of chestnut honey each, then sells 40 of the jars.",
    "351",
    id="bees",
)


def overlaps(tests: Sequence[Problem], rows: Sequence[Problem], **settings: float) -> list[RowOverlap | None]:
    texts = BenchmarkTexts(tests)
    for row in rows:
        texts.count(row)
    return [texts.overlap(row, **settings) for row in rows]


def fillers(count: int = 60) -> list[Problem]:
    return [
        problem(f"Item {i}: a tram leaves stop {i * 7} after {i + 3} minutes. {PHRASE}", str(i)) for i in range(count)
    ]


def test_a_copy_is_found_and_both_texts_are_reported() -> None:
    copy = problem("For you: " + TEST.question.upper() + " Answer briefly.", "$351$")
    overlap = overlaps([TEST], [*fillers(), copy])[-1]
    assert overlap is not None
    assert overlap.kind == "copy"
    assert (overlap.test, overlap.test_source, overlap.shared_frac) == ("bees", "test", 1.0)
    assert (overlap.question, overlap.test_question) == (copy.question, TEST.question)
    assert (overlap.numbers_frac, overlap.same_answer) == (1.0, True)


def test_a_copy_is_found_in_a_language_without_spaces() -> None:
    # Ming has 5 apples and buys 3 more. How many are there in all? Nine birds sit on a tree. How many fly away?
    asked = "\u5c0f\u660e\u67095\u4e2a\u82f9\u679c\u53c8\u4e70\u4e863\u4e2a\u4e00\u5171\u6709\u51e0\u4e2a"
    unlike = "\u6811\u4e0a\u67099\u53ea\u9e1f\u98de\u8d70\u4e86\u51e0\u53ea"
    rows = [problem(f"\u8bf7\u95ee\uff0c{asked}\uff1f", "8"), problem(unlike, "7")]
    copy, other = overlaps([problem(asked, "8")], rows)
    assert copy is not None
    assert (copy.kind, copy.shared_frac, other) == ("copy", 1.0, None)
    fruit = f"{asked}\u82f9\u679c"
    assert by_ngrams(fruit, f"\u8bf7\u95ee{fruit}") is not None


def test_the_ngram_rule_keeps_different_chinese_problems_with_a_common_opening() -> None:
    # It is known that the domain of the function is all real numbers: find its range, or say whether it is odd.
    opening = "\u5df2\u77e5\u51fd\u6570\u7684\u5b9a\u4e49\u57df\u4e3a\u5168\u4f53\u5b9e\u6570"
    test = f"{opening}\u6c42\u5b83\u7684\u6700\u5927\u503c\u548c\u6700\u5c0f\u503c\u4e4b\u5dee"
    assert by_ngrams(test, f"{opening}\u5224\u65ad\u5b83\u662f\u5426\u662f\u5947\u51fd\u6570") is None
    overlap = by_ngrams(test, f"{test}\u662f\u51e0")
    assert overlap is not None
    assert (overlap.kind, overlap.shared_frac) == ("ngram", 1.0)


def test_a_question_with_lettered_options_is_compared_without_them() -> None:
    options = "A) 12 kilograms of wax\nB) 351 jars\nC) 17 crates of oak\nD) none of the three above"
    test = replace(TEST, question=f"{TEST.question}\n\n{options}\n\n{REQUEST}", answers=("B",))
    overlap = overlaps([test], [*fillers(), problem(TEST.question, "351")])[-1]
    assert overlap is not None
    assert (overlap.kind, overlap.shared_frac, overlap.numbers_frac) == ("copy", 1.0, 1.0)
    assert overlap.test_question == test.question


def test_the_shared_fraction_weighs_rare_trigrams_more() -> None:
    """Of eight trigrams the row has four that only the test has as well, and two that six other rows have."""
    test = problem("aa bb cc dd ee ff gg hh ii jj", "7", id="t")
    others = [problem(f"xx{i} yy{i} gg hh ii jj", "1") for i in range(6)]
    row = problem("aa bb cc dd ee ff zz gg hh ii jj", "7")
    overlap = overlaps([test], [*others, row])[-1]
    assert overlap is not None
    documents = 8  # the test, six others, the row
    both, common, alone = (math.log(1 + documents / count) for count in (2, 8, 1))
    # abc bcd cde def are in the test and the row; efg and fgh only in the test; ghi and hij everywhere.
    expected = (4 * both + 2 * common) / (4 * both + 2 * common + 2 * alone)
    assert overlap.shared_frac == pytest.approx(expected, abs=1e-4)


def test_a_set_phrase_is_not_an_overlap() -> None:
    test = problem(f"A fair coin is flipped until two heads in succession appear. {PHRASE}", "5", id="coin")
    assert overlaps([test], fillers()) == [None] * 60


@pytest.mark.parametrize("copies", [1, 100])
def test_a_copy_is_found_however_often_it_is_in_the_training_set(copies: int) -> None:
    rows = [problem(TEST.question, "351", id=str(i)) for i in range(copies)]
    assert all(overlap and overlap.shared_frac == 1.0 for overlap in overlaps([TEST], rows))
    assert all(overlaps([TEST], [*fillers(), *rows])[60:])


def test_the_same_story_with_other_numbers_is_a_copy_only_if_little_else_differs() -> None:
    one_number = problem(TEST.question.replace("40", "41"), "350")
    three = problem("A beekeeper in Ljubljana fills 12 crates with 9 jars of chestnut honey, then sells 5 jars.", "103")
    first, second = overlaps([TEST], [*fillers(), one_number, three])[60:]
    assert first is not None
    assert (first.kind, first.same_answer) == ("copy", False)
    assert second is None


def test_a_reworded_copy_needs_the_numbers_and_a_paraphrase_the_answer_too() -> None:
    reworded = "In Ljubljana fills 17 wooden crates with 23 jars of chestnut honey each, and 40 are lost"
    kind, other_numbers = overlaps(
        [TEST], [*fillers(), problem(reworded, "0"), problem(reworded.translate(str.maketrans("1240", "9876")), "0")]
    )[60:]
    assert kind is not None
    assert kind.kind == "reworded"
    assert other_numbers is None
    paraphrase = "There are 17 wooden crates with 23 jars of chestnut honey. How many jars remain once 40 are gone?"
    found, other_answer = overlaps([TEST], [*fillers(), problem(paraphrase, "351"), problem(paraphrase, "350")])[60:]
    assert found is not None
    assert found.kind == "paraphrase"
    assert other_answer is None


def test_numbers_are_compared_with_the_text_that_has_fewer() -> None:
    assert numbers_frac("1 2 3 4", "2 3") == 1.0
    assert numbers_frac("2 2", "2 5 7") == 0.5
    assert numbers_frac("none", "2") == 1.0


def test_a_text_of_fewer_than_nine_words_must_match_exactly() -> None:
    tests = [problem("What is the sum?", "3", id="short"), problem("Why so?", id="too short")]
    exact, longer, too_short = overlaps(
        tests, [problem("what is  the sum"), problem("What is the sum of all?"), problem("Why so?")]
    )
    assert exact is not None
    assert (exact.kind, exact.test, exact.shared_frac, exact.same_answer) == ("exact", "short", 1.0, False)
    assert (longer, too_short) == (None, None)
    assert BenchmarkTexts(tests).too_short == 1


def test_the_most_similar_test_problem_is_named() -> None:
    sibling = problem(TEST.question.replace("40", "50"), "341", id="sibling")
    (overlap,) = overlaps([sibling, TEST], [problem(TEST.question)])
    assert overlap is not None
    assert overlap.test == "bees"


def test_a_minimum_fraction_ignores_smaller_overlaps() -> None:
    row = problem(TEST.question.replace("17 wooden crates", "17 small boxes"), "351")
    (overlap,) = overlaps([TEST], [row])
    assert overlap is not None
    assert overlaps([TEST], [row], min_frac=overlap.shared_frac + 0.001) == [None]
    assert overlaps([TEST], [row], min_frac=overlap.shared_frac - 0.001) == [overlap]


WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def by_ngrams(test: str, row: str, n: int = 10) -> RowOverlap | None:
    return NgramTexts([problem(test, "5", id="t")], ngram=n).overlap(problem(row, "5"))


def test_the_ngram_rule_needs_a_run_of_ten_words() -> None:
    test = " ".join(WORDS)  # of 12 words, so it has 3 runs of ten
    for shared, expected in ((9, None), (10, 1 / 3), (11, 2 / 3), (12, 1.0)):
        overlap = by_ngrams(test, f"zz {' '.join(WORDS[12 - shared :])} yy")
        assert (overlap and overlap.shared_frac) == (expected and round(expected, 4))
        assert overlap is None or overlap.kind == "ngram"
    assert by_ngrams(test, " ".join(reversed(WORDS))) is None
    assert by_ngrams(test, "zz ONE, two $three$ zz", n=3) is not None


def test_with_the_ngram_rule_a_question_of_fewer_words_must_match_exactly() -> None:
    nine = " ".join(WORDS[:9])
    exact = by_ngrams(nine, f"{nine.upper()}.")
    assert exact is not None
    assert (exact.kind, exact.shared_frac) == ("exact", 1.0)
    assert by_ngrams(nine, f"{nine} ten") is None
    assert by_ngrams("one two", "one two") is None
    with pytest.raises(ConfigError, match="--n = 2: expected 3 words or more"):
        by_ngrams(nine, nine, n=2)


def test_the_ngram_rule_is_that_of_a_slow_search_for_common_runs() -> None:
    """The reference compares every row with every test word by word, without an index."""
    rng = random.Random(4)

    def text(low: int, high: int) -> list[str]:
        return [rng.choice("ab") for _ in range(rng.randint(low, high))]

    tests, rows = [text(2, 14) for _ in range(30)], [text(2, 40) for _ in range(400)]
    index = NgramTexts([problem(" ".join(words), id=str(i)) for i, words in enumerate(tests)], ngram=10)
    found = [index.overlap(problem(" ".join(words))) is not None for words in rows]

    def common_run(test: list[str], row: list[str]) -> bool:
        if len(test) < 10:
            return len(test) >= 3 and test == row
        starts = itertools.product(range(len(test)), range(len(row)))
        return any(i + 10 <= len(test) and test[i : i + 10] == row[j : j + 10] for i, j in starts)

    assert found == [any(common_run(test, row) for test in tests) for row in rows]
    assert 0 < sum(found) < len(rows)


needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the public data files (../shared/data) are not here")


def read(name: str) -> list[Problem]:
    return [row for _, row in rows_with_problems(open_rows(SHARED / name), RowSettings(), source=name)]


@needs_shared
def test_no_row_of_math_overlaps_with_contests_that_are_newer_than_it() -> None:
    pytest.importorskip("zstandard")
    tests = [row for name in ("aime24", "aime25", "amc23") for row in read(f"{name}/test.jsonl")]
    rows = read("math/train.jsonl.zst")
    found = overlaps(tests, [*rows, *tests])
    assert [overlap for overlap in found[:7500] if overlap] == []
    assert [overlap.test for overlap in found[7500:] if overlap] == [test.id for test in tests]


@needs_shared
def test_the_questions_of_math_500_are_found_in_the_file_from_which_they_were_taken() -> None:
    found = overlaps(read("math500/test.jsonl"), read("math/test.jsonl"))
    assert len({overlap.test for overlap in found if overlap and overlap.shared_frac == 1.0}) > 490


@needs_shared
def test_planted_copies_are_found_more_often_and_fewer_other_rows_are_dropped_than_by_ngrams() -> None:
    pytest.importorskip("zstandard")
    spec = importlib.util.spec_from_file_location("decontamination", ROOT / "benchmarks" / "decontamination.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    tests = [*read("math500/test.jsonl"), *read("aime24/test.jsonl"), *read("aime25/test.jsonl")]
    rows = read("math/train.jsonl.zst")
    copies = benchmark.planted(tests, per_edit=20, seed=7)
    assert len(copies) == 220
    results = [benchmark.measure(rule, rows, copies, tests) for rule in benchmark.RULES.values()]
    found = [sum(result["recall"].values()) for result in results]
    dropped = [sum(result["dropped_originals"].values()) for result in results]
    assert found[2] >= 0.95 * len(copies)
    assert found[2] > max(found[:2])
    assert dropped[2] < 0.5 * min(dropped[:2])
    assert results[2]["false_drops"] == 0
