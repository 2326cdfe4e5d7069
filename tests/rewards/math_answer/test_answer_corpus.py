"""Every pair of our corpus, by phenomenon, and the laws that hold of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from latex import answers, check_verdict

from ansatz.rewards.math_answer import ALGEBRA_TARGET, Reason, equivalent, verify
from ansatz.rewards.pool import WorkerPool

CORPUS = Path(__file__).parents[2] / "corpora" / "math_answers.jsonl"
CASES = [json.loads(line) for line in CORPUS.read_text().splitlines()]
PHENOMENA = sorted({case["why"] for case in CASES})


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    made = WorkerPool(ALGEBRA_TARGET, timeout_s=5.0)  # the machine that runs the tests may be busy
    yield made
    made.close()


@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_every_verdict_of_the_corpus_is_right(phenomenon: str, pool: WorkerPool):
    wrong: list[str] = []
    for case in CASES:
        if case["why"] == phenomenon:
            verdict = verify(case["gold"], case["response"], mode=case.get("mode", "strict"), pool=pool)
            if bool(verdict) != (case["verdict"] == "right"):
                wrong.append(
                    f"{case['gold']!r} and {case['response']!r}: {verdict.reason}, should be {case['verdict']}"
                )
    assert not wrong, "\n".join(wrong)


def test_the_corpus_holds_right_and_wrong_answers_of_every_kind():
    assert len(CASES) > 500
    assert sum(case["verdict"] == "wrong" for case in CASES) > 150


def test_every_gold_that_has_a_value_equals_itself(pool: WorkerPool):
    worthless = {"nan", r"\frac{0}{0}"}
    wrong = [g for g in {c["gold"] for c in CASES} - worthless if not equivalent(g, g, pool=pool)]
    assert wrong == []


def test_equality_is_symmetric_where_neither_side_is_a_percentage_or_a_lettered_answer(pool: WorkerPool):
    """A percent sign on the gold alone forgives its absence, and a letter before an answer is read on answers alone."""
    wrong: list[tuple[str, str]] = []
    for case in CASES:
        boxed = case["response"].startswith("\\boxed{") and case["response"].endswith("}") and "mode" not in case
        answer = case["response"][7:-1]
        if not boxed or any(mark in case["gold"] + answer for mark in ("%", "percent", "(B)", "daps")):
            continue
        if bool(equivalent(case["gold"], answer, pool=pool)) != bool(equivalent(answer, case["gold"], pool=pool)):
            wrong.append((case["gold"], answer))
    assert wrong == []


def test_verdicts_do_not_depend_on_the_order_of_a_batch(pool: WorkerPool):
    def reasons(cases: list[dict[str, str]]) -> list[Reason]:
        return [verify(c["gold"], c["response"], mode=c.get("mode", "strict"), pool=pool).reason for c in cases]

    assert reasons(CASES) == reasons(CASES[::-1])[::-1]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(answers(), answers())
def test_no_text_raises_hangs_or_crashes_a_worker(gold: str, answer: str):
    assert check_verdict(gold, answer) >= 0
