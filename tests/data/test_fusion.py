from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansatz.data.base import load_problems
from ansatz.data.fusion import in_mode, parts_of
from ansatz.errors import ConfigError, DataError
from ansatz.types import Problem

FORM = "\\boxed{{answer}}"


def problem(solution: str | None = "2+3=5") -> Problem:
    return Problem(
        id="p7", question="2+3?", answers=("5",), source="test", split="train", solution=solution, meta={"line": 1}
    )


def fused(of: dict[str, Any] | None = None, **settings: Any) -> Any:
    inner = of or {"source": "arithmetic", "count": 2000}
    return load_problems("fusion", split="train", settings={"of": inner, **settings})


def test_a_thinking_problem_has_its_reasoning_in_the_block_and_the_answer_after_it() -> None:
    result = in_mode(problem(), thinks=True, flag="/think", answer_form=FORM)
    assert result.question == "2+3? /think"
    assert result.solution == "<think>\n2+3=5\n</think>\n\n\\boxed{5}"
    assert (result.id, result.answer, result.meta) == ("p7", "5", {"line": 1, "mode": "think"})


def test_a_direct_problem_has_an_empty_block_and_only_the_answer() -> None:
    result = in_mode(problem(), thinks=False, flag="/no_think", answer_form="So it is {answer}.")
    assert result.question == "2+3? /no_think"
    assert result.solution == "<think>\n\n</think>\n\nSo it is 5."
    assert result.meta["mode"] == "no_think"
    assert in_mode(problem(None), thinks=False, flag="/no_think", answer_form=FORM).solution.endswith("\\boxed{5}")


def test_a_solution_that_has_a_block_keeps_the_text_after_it() -> None:
    solved = problem("<think>\nHm, 5.\n</think>\n\nThe sum is \\boxed{5}.")
    assert parts_of(solved) == ("Hm, 5.", "The sum is \\boxed{5}.")
    assert in_mode(solved, thinks=True, flag="", answer_form=FORM).solution == solved.solution
    short = in_mode(solved, thinks=False, flag="/no_think", answer_form=FORM)
    assert short.solution == "<think>\n\n</think>\n\nThe sum is \\boxed{5}."


BROKEN = ["<think>5", "5</think>", "<think>5</think>", "<think>a</think>b<think>c</think>d", "a<think>b</think>c"]


@pytest.mark.parametrize("solution", BROKEN)
def test_a_broken_block_is_named(solution: str) -> None:
    with pytest.raises(DataError, match="'p7' of 'test' must be one <think> block followed by an answer"):
        parts_of(problem(solution))


def test_mode_fractions_match_the_settings_and_the_order_is_that_of_the_source() -> None:
    problems = fused(think_frac=0.7, unmarked_frac=0.2, seed=3)
    inner = load_problems("arithmetic", split="train", settings={"count": 2000})
    assert [row.id for row in problems] == [row.id for row in inner]
    ends = Counter(row.question.rpartition(" ")[2] for row in problems if row.question.endswith("think"))
    assert ends["/no_think"] / 2000 == pytest.approx(0.3, abs=0.04)
    assert ends["/think"] / 2000 == pytest.approx(0.7 * 0.8, abs=0.04)
    modes = Counter(row.meta["mode"] for row in problems)
    assert modes == {"think": 2000 - ends["/no_think"], "no_think": ends["/no_think"]}
    assert problems[5:7] == [problems[5], problems[6]]


def test_the_mode_of_a_row_depends_on_the_seed_but_not_on_other_rows() -> None:
    modes = {row.id: row.meta["mode"] for row in fused()}
    fewer = fused({"source": "arithmetic", "count": 50})
    assert all(modes[row.id] == row.meta["mode"] for row in fewer)
    assert any(modes[row.id] != row.meta["mode"] for row in fused(seed=1))
    assert {row.meta["mode"] for row in fused(think_frac=0)} == {"no_think"}
    assert {row.meta["mode"] for row in fused(think_frac=1)} == {"think"}


def test_a_thinking_problem_needs_a_solution(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "2+3?", "answer": "5"}))
    rows = {"source": "jsonl", "path": str(tmp_path / "rows.jsonl"), "split": "other"}
    assert [row.split for row in fused(rows, think_frac=0)] == ["other"]
    with pytest.raises(DataError, match=r"has no worked solution, which thinking mode needs\. Set solution_key"):
        list(fused(rows, think_frac=1))


@pytest.mark.parametrize("thinks", [True, False])
def test_a_problem_without_an_answer_is_refused_unless_its_solution_gives_one(thinks: bool) -> None:
    with pytest.raises(DataError, match="problem 'p7' of 'test' has no gold answer"):
        in_mode(replace(problem(), answers=()), thinks=thinks, flag="", answer_form=FORM)
    solved = replace(problem("<think>\nHm.\n</think>\n\nHello."), answers=())
    assert str(in_mode(solved, thinks=thinks, flag="", answer_form=FORM).solution).endswith("</think>\n\nHello.")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"think_frac": 1.5}, "think_frac = 1.5, expected 0 to 1"),
        ({"unmarked_frac": -1.0}, "unmarked_frac = -1.0, expected 0 to 1"),
        ({"answer_form": "boxed"}, r"answer_form = 'boxed', expected \{answer\} in it"),
        ({"of": {"path": "x"}}, r"of\.source = None"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fused(**settings) if "of" not in settings else fused(settings["of"])
