"""Every pair of our corpora, by phenomenon or class, and laws that hold for all pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansatz_verify import Reason, Verdict, equivalent, verify
from ansatz_verify.grade import ALGEBRA_TARGET
from ansatz_verify.pool import WorkerPool
from hypothesis import HealthCheck, given, settings
from latex import answers, check_verdict

CORPORA = Path(__file__).parent / "corpora"


def load(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (CORPORA / name).read_text().splitlines()]


CASES = load("math_answers.jsonl")
PHENOMENA = sorted({case["why"] for case in CASES})
CLASS_CASES = load("math_answer_classes.jsonl")
"""Cases by class of answer, written from the meaning of each class: right answers and near misses, half and half."""


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(ALGEBRA_TARGET, timeout_s=5.0)  # the machine that runs the tests can be busy
    yield pool
    pool.close()


@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_every_verdict_of_the_corpus_is_correct(phenomenon: str, pool: WorkerPool):
    assert mistakes([case for case in CASES if case["why"] == phenomenon], pool) == []


@pytest.mark.parametrize("why", sorted({case["why"] for case in CLASS_CASES}))
def test_every_verdict_of_a_class_is_correct(why: str, pool: WorkerPool):
    assert mistakes([case for case in CLASS_CASES if case["why"] == why], pool) == []


def test_half_of_the_class_cases_are_near_misses():
    near_misses = sum(case["verdict"] == "wrong" for case in CLASS_CASES)
    assert len(CLASS_CASES) >= 300
    assert 0.45 <= near_misses / len(CLASS_CASES) <= 0.6


def mistakes(cases: list[dict[str, str]], pool: WorkerPool) -> list[str]:
    """The cases with a wrong verdict, in words."""
    wrong: list[str] = []
    for case in cases:
        verdict = judge(case, pool)
        if bool(verdict) != (case["verdict"] == "right"):
            wrong.append(f"{case['gold']!r} and {case['response']!r}: {verdict.reason}, expected {case['verdict']}")
    return wrong


def judge(case: dict[str, str], pool: WorkerPool) -> Verdict:
    """The verdict on a response, or on a bare answer where the mode of the case is `equivalent`."""
    mode = case.get("mode", "strict")
    if mode == "equivalent":
        return equivalent(case["gold"], case["response"], pool=pool)
    return verify(case["gold"], case["response"], mode=mode, pool=pool)


def test_the_corpus_holds_right_and_wrong_answers_of_every_kind():
    assert len(CASES) > 500
    assert sum(case["verdict"] == "wrong" for case in CASES) > 150


def test_every_gold_that_has_a_value_equals_itself(pool: WorkerPool):
    worthless = {"nan", r"\frac{0}{0}"}
    wrong = [g for g in {c["gold"] for c in CASES} - worthless if not equivalent(g, g, pool=pool)]
    assert wrong == []


def test_equality_is_symmetric_for_plain_answers(pool: WorkerPool):
    """Not symmetric by design: percent signs, lettered answers, and decimals for exact constants.

    Only a gold forgives a missing percent sign, only an answer can have a letter before it, and only a gold decimal
    equals an exact constant.
    """
    wrong: list[tuple[str, str]] = []
    for case in CASES:
        boxed = case["response"].startswith("\\boxed{") and case["response"].endswith("}") and "mode" not in case
        answer = case["response"][7:-1]
        if not boxed or any(mark in case["gold"] + answer for mark in ("%", "percent", "(B)")):
            continue
        if "." in case["gold"] + answer and any(mark in case["gold"] + answer for mark in ("pi", "sqrt", "e")):
            continue
        if bool(equivalent(case["gold"], answer, pool=pool)) != bool(equivalent(answer, case["gold"], pool=pool)):
            wrong.append((case["gold"], answer))
    assert wrong == []


def test_verdicts_do_not_depend_on_the_order_of_a_batch(pool: WorkerPool):
    def reasons(cases: list[dict[str, str]]) -> list[Reason]:
        return [judge(case, pool).reason for case in cases]

    assert reasons(CASES) == reasons(CASES[::-1])[::-1]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(answers(), answers())
def test_no_text_raises_hangs_or_crashes_a_worker(gold: str, answer: str):
    assert check_verdict(gold, answer) >= 0
