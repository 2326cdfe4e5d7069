"""Accuracy by tokens spent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansatz.evaluate.folder import cost_rows, write_cost

SCORES = {
    "mean_length": 12.5,
    "by_level": {"1": {"mean_length": 3.0}},
    "strict": {"pass@1": 0.25, "maj@k": {"1": 0.25, "2": 0.25, "4": 0.5}},
    "anchored": {"pass@1": 0.5, "maj@k": {"1": 0.5, "2": 0.5, "4": 0.75}},
}


def test_k_responses_take_k_times_the_mean_length() -> None:
    assert cost_rows(SCORES) == [
        {"k": 1, "mean_tokens": 12.5, "maj@k": {"strict": 0.25, "anchored": 0.5}},
        {"k": 2, "mean_tokens": 25.0, "maj@k": {"strict": 0.25, "anchored": 0.5}},
        {"k": 4, "mean_tokens": 50.0, "maj@k": {"strict": 0.5, "anchored": 0.75}},
    ]


def test_the_figure_has_one_line_per_evaluation(tmp_path: Path) -> None:
    write_cost(tmp_path, "made up", {"budget 64": SCORES, "budget none": {**SCORES, "mean_length": 40.0}})
    written = json.loads((tmp_path / "cost.json").read_text())
    assert [[row["mean_tokens"] for row in rows] for rows in written["lines"].values()] == [
        pytest.approx([12.5, 25.0, 50.0]),
        pytest.approx([40.0, 80.0, 160.0]),
    ]
    svg = (tmp_path / "cost.svg").read_text()
    assert "budget 64" in svg
    assert "budget none" in svg
    assert svg.count('class="dot') == 6


def test_single_responses_have_no_curve(tmp_path: Path) -> None:
    write_cost(tmp_path, "made up", {"all": {**SCORES, "strict": {"maj@k": {"1": 0.25}}, "anchored": {}}})
    assert list(tmp_path.iterdir()) == []
