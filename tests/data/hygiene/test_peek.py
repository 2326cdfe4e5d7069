from __future__ import annotations

from dataclasses import replace

import pytest

from ansatz.data.hygiene.peek import answer_kind, doubts, quantiles, summarize
from tests.data.hygiene.problems import problem


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("-12", "integer"),
        ("1,000", "integer"),
        ("$7$", "integer"),
        ("3.5", "decimal"),
        ("3/4", "fraction"),
        (r"-\dfrac{3}{4}", "fraction"),
        (r"\frac34", "fraction"),
        (r"25\%", "percent or money"),
        (r"\$18.50", "percent or money"),
        (r"\text{(C)}", "letter"),
        (r"\left( 3, \frac{\pi}{2} \right)", "tuple or list"),
        ("1, 2, 3", "tuple or list"),
        ("y = 2x", "equation"),
        (r"\text{Monday}", "words"),
        (r"\frac{\sqrt{3}}{2}", "expression"),
        (r"2\pi", "expression"),
    ],
)
def test_kinds_of_answers(answer: str, kind: str) -> None:
    assert answer_kind(answer) == kind


def test_quantiles_are_values_that_occur() -> None:
    assert quantiles([5, 1, 3, 2, 4]) == (1, 1, 3, 5, 5)
    assert quantiles(range(101)) == (0, 5, 50, 95, 100)
    assert quantiles([]) == ()


@pytest.mark.parametrize(
    ("question", "answer", "solution", "why"),
    [
        ("Find it.", "1", None, "fewer than 4 words"),
        ("What is the area shown below in all?", "1", None, "picture"),
        ("Let x = 1. (a) Find x. (b) Find y.", "1", None, "several parts"),
        ("What is the \ufffd of this?", "1", None, "lost in decoding"),
        ("What is the sum of all?", "1" * 101, None, "longer than 100"),
        ("What is the sum of all?", "So #### 5", None, "worked solution"),
        ("What is the sum of all?", "5", r"It is \boxed{6}.", "ends with a different answer"),
        ("What is the sum of all?", "yes", None, "a filter would drop it: true_false"),
    ],
)
def test_suspicious_rows_have_a_reason(question: str, answer: str, solution: str | None, why: str) -> None:
    (reason,) = doubts(problem(question, answer, solution=solution))
    assert why in reason


def test_a_plain_row_is_not_suspicious() -> None:
    assert doubts(problem("What is the sum of all?", "5", solution="2+3=5\n#### 5")) == []


def test_a_summary_counts_all_rows() -> None:
    rows = [problem("What is the sum of all?", str(i), id=str(min(i, 2)), solution="a b") for i in range(4)]
    summary = summarize(rows, length=len)
    assert (summary.rows, summary.question_lengths[0], summary.solution_lengths) == (4, 23, (3, 3, 3, 3, 3))
    assert summary.answer_kinds == {"integer": 4}
    assert summary.levels == {"none": 4}
    assert summary.suspicious == ((4, "2", "an earlier row has the same id"),)


def test_subjects_and_sources_are_those_that_the_rows_state() -> None:
    rows = [replace(problem("What is the sum of all?"), meta={"type": "Algebra", "data_source": "aops"})] * 2
    summary = summarize([*rows, problem("What is the sum of all?", id="q")])
    assert summary.subjects == {"Algebra": 2, "none": 1}
    assert summary.sources == {"aops": 2, "none": 1}


def test_the_caller_decides_whether_a_solution_ends_with_the_gold_answer() -> None:
    row = problem("What is the sum of all?", "0.5", solution=r"It is \boxed{\frac12}.")
    assert doubts(row) == ["the solution ends with a different answer"]
    assert doubts(row, same=lambda answer, gold: (answer, gold) == (r"\frac12", "0.5")) == []
