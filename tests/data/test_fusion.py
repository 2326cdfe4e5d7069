from __future__ import annotations

import json
from collections import Counter
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
        id="p7", question="2+3?", answer="5", source="test", split="train", solution=solution, meta={"line": 1}
    )


def fused(of: dict[str, Any] | None = None, **settings: Any) -> Any:
    inner = of or {"source": "arithmetic", "count": 2000}
    return load_problems("fusion", split="train", settings={"of": inner, **settings})


def test_a_problem_that_thinks_has_its_reasoning_in_the_block_and_the_answer_after_it() -> None:
    found = in_mode(problem(), thinks=True, flag="/think", answer_form=FORM)
    assert found.question == "2+3? /think"
    assert found.solution == "<think>\n2+3=5\n</think>\n\n\\boxed{5}"
    assert (found.id, found.answer, found.meta) == ("p7", "5", {"line": 1, "mode": "think"})


def test_a_problem_that_does_not_think_has_an_empty_block_and_the_answer_alone() -> None:
    found = in_mode(problem(), thinks=False, flag="/no_think", answer_form="So it is {answer}.")
    assert found.question == "2+3? /no_think"
    assert found.solution == "<think>\n\n</think>\n\nSo it is 5."
    assert found.meta["mode"] == "no_think"
    assert in_mode(problem(None), thinks=False, flag="/no_think", answer_form=FORM).solution.endswith("\\boxed{5}")


def test_a_solution_with_a_block_of_its_own_keeps_what_follows_it() -> None:
    own = problem("<think>\nHm, 5.\n</think>\n\nThe sum is \\boxed{5}.")
    assert parts_of(own) == ("Hm, 5.", "The sum is \\boxed{5}.")
    assert in_mode(own, thinks=True, flag="", answer_form=FORM).solution == own.solution
    short = in_mode(own, thinks=False, flag="/no_think", answer_form=FORM)
    assert short.solution == "<think>\n\n</think>\n\nThe sum is \\boxed{5}."


BROKEN = ["<think>5", "5</think>", "<think>5</think>", "<think>a</think>b<think>c</think>d", "a<think>b</think>c"]


@pytest.mark.parametrize("solution", BROKEN)
def test_a_broken_block_is_named(solution: str) -> None:
    with pytest.raises(DataError, match="'p7' of 'test' must be one <think> block followed by an answer"):
        parts_of(problem(solution))


def test_shares_are_as_asked_and_the_order_is_the_sources() -> None:
    problems = fused(think_frac=0.7, unmarked_frac=0.2, seed=3)
    inner = load_problems("arithmetic", split="train", settings={"count": 2000})
    assert [one.id for one in problems] == [one.id for one in inner]
    ends = Counter(one.question.rpartition(" ")[2] for one in problems if one.question.endswith("think"))
    assert ends["/no_think"] / 2000 == pytest.approx(0.3, abs=0.04)
    assert ends["/think"] / 2000 == pytest.approx(0.7 * 0.8, abs=0.04)
    modes = Counter(one.meta["mode"] for one in problems)
    assert modes == {"think": 2000 - ends["/no_think"], "no_think": ends["/no_think"]}
    assert problems[5:7] == [problems[5], problems[6]]


def test_a_rows_mode_stays_when_others_go_and_another_seed_gives_other_modes() -> None:
    modes = {one.id: one.meta["mode"] for one in fused()}
    fewer = fused({"source": "arithmetic", "count": 50})
    assert all(modes[one.id] == one.meta["mode"] for one in fewer)
    assert any(modes[one.id] != one.meta["mode"] for one in fused(seed=1))
    assert {one.meta["mode"] for one in fused(think_frac=0)} == {"no_think"}
    assert {one.meta["mode"] for one in fused(think_frac=1)} == {"think"}


def test_a_problem_that_should_think_needs_a_solution(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "2+3?", "answer": "5"}))
    rows = {"source": "jsonl", "path": str(tmp_path / "rows.jsonl"), "split": "other"}
    assert [one.split for one in fused(rows, think_frac=0)] == ["other"]
    with pytest.raises(DataError, match=r"has no worked solution, which thinking mode needs\. Set solution_key"):
        list(fused(rows, think_frac=1))


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
