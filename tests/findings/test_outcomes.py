"""Outcomes of a run folder that is written by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from ansatz.errors import ConfigError, DataError
from ansatz.findings.outcomes import bind_guard, bind_outcome
from ansatz.track.runs import PipelineRun, read_pipeline

LOGPS = {0: [0.5, 0.1], 10: [0.8, 0.2], 20: [0.7, 0.1]}
"""By step: the probability of the worked solution of two problems."""


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluation(stage: str, step: int) -> dict[str, Any]:
    exact = sum(LOGPS[step]) / 2
    numbers = {"pass@1": exact, "greedy": 1.0, "pass@k": exact, "maj@k": exact, "mean_length": 9.0}
    return {"stage": stage, "step": step, "split": "heldout", **numbers, "truncated_frac": 0.0, "exact_pass@1": exact}


@pytest.fixture
def run(tmp_path: Path) -> PipelineRun:
    """The model of a run is evaluated, then 20 steps of RL; step 2 has two groups."""
    for stage, steps in (("model", (0,)), ("rl", (10, 20))):
        lines(tmp_path / stage / "evaluations.jsonl", [evaluation(stage, step) for step in steps])
        for step in steps:
            rows = [
                {"id": f"{stage}/{step}/{place}/greedy", "problem": f"p{place}", "solution_logps": {"1": math.log(p)}}
                for place, p in enumerate(LOGPS[step])
            ]
            lines(tmp_path / stage / "evaluations" / f"heldout-{step:06d}.jsonl", rows)
    metrics = [{"step": step, "seconds": 1.0, "rollout/repetition": 0.1 * step} for step in range(1, 21)]
    lines(tmp_path / "rl" / "metrics.jsonl", metrics)
    # Group 0: wrong 8 and 10 tokens, right 5: a difference of 4. Group 1 has no wrong one. Spreads: sqrt(19/3), 0.
    members = [(0, 8, False), (0, 10, False), (0, 5, True), (1, 7, True), (1, 7, True)]
    samples = [{"group": group, "tokens": tokens, "correct": correct} for group, tokens, correct in members]
    lines(tmp_path / "rl" / "samples" / "step-000002.jsonl", samples)
    (tmp_path / "summary.json").write_text(
        json.dumps({"seconds": 1.0, "model": "", "evaluations": [evaluation("model", 0), evaluation("rl", 10)]})
    )
    return read_pipeline(tmp_path)


def measure(run: PipelineRun, name: str, **settings: Any) -> float | None:
    return bind_outcome({"name": name, **settings})(run)


def test_exact_pass_at_k_is_the_mean_over_the_problems(run: PipelineRun) -> None:
    assert measure(run, "exact_pass@k") == pytest.approx(0.4)
    assert measure(run, "exact_pass@k", step=0) == pytest.approx(0.3)
    assert measure(run, "exact_pass@k", k=2, step=10) == pytest.approx((1 - 0.2**2 + 1 - 0.8**2) / 2, rel=1e-5)
    with pytest.raises(DataError, match="no evaluation of step 7, only of steps 0, 10, 20"):
        measure(run, "exact_pass@k", step=7)


def test_curves_are_read_from_the_model_that_the_stage_started_with_on(run: PipelineRun) -> None:
    assert measure(run, "drop_from_peak") == pytest.approx(0.4 - 0.5)
    assert measure(run, "steps_to", value=0.4) == pytest.approx(5.0)  # 0.3 at step 0, 0.5 at step 10
    assert measure(run, "steps_to", value=0.9) is None
    assert measure(run, "sampled_pass@1", step=10) == pytest.approx(0.5)


def test_means_of_metrics_are_over_the_steps_that_are_asked_for(run: PipelineRun) -> None:
    assert measure(run, "mean_metric", metric="rollout/repetition", steps=[2, 4]) == pytest.approx(0.3)
    assert measure(run, "repetition", steps=2) == pytest.approx(1.95)
    assert bind_guard("rollout/repetition")(run) == pytest.approx(1.05)
    assert bind_guard("control_exact")(run) == pytest.approx(0.4)


def test_lengths_are_compared_within_groups_that_have_right_and_wrong_responses(run: PipelineRun) -> None:
    assert measure(run, "length_within_problem") == pytest.approx(4.0)
    assert measure(run, "length_within_problem", steps=[3, 9]) is None
    assert measure(run, "within_group_length_sd") == pytest.approx(math.sqrt(19 / 3) / 2)


def test_an_unknown_outcome_or_setting_is_named() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'exact_pass@k'"):
        bind_outcome({"name": "exact_pass"})
    with pytest.raises(ConfigError, match="has no setting 'kk'"):
        bind_outcome({"name": "exact_pass@k", "kk": 2})
    with pytest.raises(ConfigError, match="'steps_to' needs the setting 'value'"):
        bind_outcome({"name": "steps_to"})
    with pytest.raises(ConfigError, match="has no setting 'valeu'"):
        bind_outcome({"name": "steps_to", "valeu": 0.5})


def test_a_level_without_a_number_has_no_gain_in_it(run: PipelineRun, tmp_path: Path) -> None:
    """Levels have exact_pass@1 only with worked solutions, and greedy only if it was measured."""
    rows = [{**evaluation("rl", step), "by_level": {"1": {"pass@1": step / 40, "greedy": None}}} for step in (10, 20)]
    lines(tmp_path / "rl" / "evaluations.jsonl", rows)
    (tmp_path / "summary.json").unlink()
    again = read_pipeline(tmp_path)
    assert measure(again, "gain_by_level", level="1", number="pass@1") == pytest.approx(0.25)
    assert measure(again, "gain_by_level", level="1") is None
    assert measure(again, "gain_by_level", level="1", number="greedy") is None
    assert measure(again, "gain_by_level", level="2", number="pass@1") is None
