from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.budgets import budget_chart, budget_folder, budget_folders, parse_budgets, write_curve
from ansatz.evaluate.folder import EvaluationFolder
from ansatz.evaluate.responses import MODES, Response, to_row
from ansatz.track.jsonl import write_jsonl
from ansatz.types import Finish, Reason, Verdict

SETTINGS = {"suite": {"name": "made up"}, "num_problems": 1, "samples_per_prompt": 4, "seed": 0}


def evaluation(path: Path, *, budget: int, marks: str, tokens: int, k: int = 4) -> None:
    """One problem, a response for each mark: 1 is right in every reading, ~ in the most lenient alone."""
    folder = EvaluationFolder(budget_folder(path, budget))
    bound = {"thinking_budget": budget, "closing": "</think>"} if budget > 0 else {}
    bound |= {"min_thinking_budget": -budget, "wait": "Wait"} if budget < 0 else {}
    folder.open_or_check({**SETTINGS, **bound, "samples_per_prompt": k})
    write_jsonl(folder.rollouts, [to_row(response(i, mark, tokens)) for i, mark in enumerate(marks)])


def response(sample: int, mark: str, tokens: int) -> Response:
    right = {mode: mark == "1" or (mark == "~" and mode == "last_number") for mode in MODES}
    return Response(
        id="p",
        sample=sample,
        level="",
        subject="",
        question="?",
        answer="5",
        response="",
        tokens=tokens,
        finish=Finish.BUDGET if mark == "~" else Finish.STOP,
        verdicts={
            mode: Verdict(correct=is_correct, reason=Reason.EQUAL if is_correct else Reason.NO_ANSWER)
            for mode, is_correct in right.items()
        },
    )


def curve_of_three(path: Path) -> dict:
    evaluation(path, budget=0, marks="1110", tokens=90)
    evaluation(path, budget=256, marks="1100", tokens=60)
    evaluation(path, budget=64, marks="1~00", tokens=30)
    return write_curve(path, budget_folders(path))


def test_budgets_are_read_from_the_tightest_to_none() -> None:
    assert parse_budgets("0,256, 64") == [64, 256, 0]
    assert parse_budgets("+512,0,+64,64") == [64, 0, -64, -512]
    for wrong in ("", "64,", "64,64", "-1", "many", "+", "++1", "0,+0"):
        with pytest.raises(ConfigError, match="expected different numbers of tokens"):
            parse_budgets(wrong)


def test_each_budget_is_a_row_with_its_scores_and_length(tmp_path: Path) -> None:
    curve = curve_of_three(tmp_path)
    assert json.loads((tmp_path / "budgets.json").read_text()) == curve
    assert curve["settings"] == SETTINGS
    rows = curve["rows"]
    assert [(row["budget"], row["mean_length"]) for row in rows] == [(64, 30), (256, 60), (0, 90)]
    assert [row["strict"]["pass@1"] for row in rows] == [0.25, 0.5, 0.75]
    assert [row["last_number"]["pass@1"] for row in rows] == [0.5, 0.5, 0.75]
    assert [row["finishes"].get("budget", 0) for row in rows] == [0.25, 0, 0]


def test_the_figure_has_a_line_for_each_reading_that_differs(tmp_path: Path) -> None:
    chart = budget_chart(curve_of_three(tmp_path))
    lines = {line.name: [y for _, y in line.points] for line in chart.series}
    assert lines["pass@1 strict = pass@1 anchored"] == [0.25, 0.5, 0.75]
    assert lines["pass@1 last_number"] == [0.5, 0.5, 0.75]
    assert lines["maj@4 strict"] == [1.0, 1.0, 1.0]
    assert len(chart.series) == 3
    assert list(chart.x_ticks or ()) == [(0, "64"), (1, "256"), (2, "none")]
    assert chart.series[0].labels[0] == "64, 30 tokens"
    assert "made up by thinking budget" in (tmp_path / "budgets.svg").read_text()


def test_longer_thoughts_come_after_those_without_a_limit(tmp_path: Path) -> None:
    for budget, tokens in ((-256, 300), (0, 90), (64, 30)):
        evaluation(tmp_path, budget=budget, marks="1110", tokens=tokens)
    assert [folder.path.name for folder in budget_folders(tmp_path)] == ["budget-64", "budget-none", "budget-min256"]
    chart = budget_chart(write_curve(tmp_path, budget_folders(tmp_path)))
    assert list(chart.x_ticks or ()) == [(0, "64"), (1, "none"), (2, "+256")]
    assert chart.series[0].labels[2] == "+256, 300 tokens"


def test_evaluations_that_differ_in_more_are_no_curve(tmp_path: Path) -> None:
    evaluation(tmp_path, budget=0, marks="1110", tokens=90)
    evaluation(tmp_path, budget=64, marks="11", tokens=30, k=2)
    with pytest.raises(ConfigError, match=r"differs from .* in samples_per_prompt; a curve needs"):
        write_curve(tmp_path, budget_folders(tmp_path))
    evaluation(tmp_path / "short", budget=64, marks="11", tokens=30)
    with pytest.raises(DataError, match="has all samples of 0 problems"):
        write_curve(tmp_path / "short", budget_folders(tmp_path / "short"))


def test_responses_without_a_budget_are_not_gone_on_with_under_one(tmp_path: Path) -> None:
    EvaluationFolder(tmp_path).open_or_check(SETTINGS)
    with pytest.raises(ConfigError, match="with thinking_budget = None; this command has 64"):
        EvaluationFolder(tmp_path).open_or_check({**SETTINGS, "thinking_budget": 64})
    EvaluationFolder(tmp_path).open_or_check(SETTINGS)
