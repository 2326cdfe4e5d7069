"""Rows that no run writes are named, with their file, before anything is drawn from them."""

import json
import math
from pathlib import Path

import pytest

from ansatz.errors import DataError
from ansatz.track.checked_rows import evaluation_rows, metrics_rows

SCORES = dict.fromkeys(("pass@1", "greedy", "pass@k", "maj@k", "mean_length", "truncated_frac"), 0.5)
EVALUATION = {"stage": "rl", "step": 1, "split": "heldout", **SCORES, "by_level": {"1": SCORES}}


def test_rows_that_a_run_wrote_are_returned_as_they_are():
    rows = [{"step": 0, "seconds": 0.5, "train/loss": -1}]
    assert metrics_rows(rows, Path("m")) is rows
    assert evaluation_rows([EVALUATION, {**EVALUATION, "greedy": None, "pass@1_interval": [0.1, 0.2]}], Path("e"))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"step": "1"}, "step"),
        ({"step": True}, "step"),
        ({"step": -1}, "step"),
        ({"step": 10**30}, "step"),
        ({"seconds": None}, "seconds"),
        ({"train/loss": math.inf}, "train/loss"),
        ({"train/loss": [1]}, "train/loss"),
    ],
)
def test_a_wrong_metric_is_named_with_its_line(change, key):
    rows = [{"step": 1, "seconds": 1.0}, {"step": 1, "seconds": 1.0, **change}]
    with pytest.raises(DataError, match=f"m.jsonl, line 2: '{key}' is .*, which no run writes"):
        metrics_rows(rows, Path("m.jsonl"))


@pytest.mark.parametrize(
    "row",
    [
        None,
        {},
        {**EVALUATION, "stage": None},
        {**EVALUATION, "pass@1": "x"},
        {**EVALUATION, "pass@1_interval": [0.1]},
        {**EVALUATION, "by_level": []},
        {**EVALUATION, "by_level": {"1": 3}},
        {**EVALUATION, "by_source": {"easy": 3}},
        {**EVALUATION, "by_source": {"easy": SCORES}, "best_by": "hard"},
        {**EVALUATION, "by_level": {"1": {**SCORES, "greedy": math.nan}}},
        {**EVALUATION, "k": 1.5},
    ],
    ids=json.dumps,
)
def test_a_wrong_evaluation_is_named_with_its_place(row):
    with pytest.raises(DataError, match=r"e.jsonl, evaluation 2"):
        evaluation_rows([EVALUATION, row], Path("e.jsonl"))
