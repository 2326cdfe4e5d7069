from __future__ import annotations

import pytest

from ansatz.loop.collect import StepData
from ansatz.loop.stages.rl import step_metrics
from ansatz.track.measurements import Measurement, mean
from ansatz.train.trainer import StepReport
from ansatz.types import Finish, Group, Problem, Prompt, Reason, Rollout, Score, ScoredRollout, Verdict


def group() -> Group:
    prompt = Prompt(
        problem=Problem(id="a", question="?", answers=("1",), source="", split=""), text="?", token_ids=(1,)
    )
    rollout = Rollout(
        prompt=prompt,
        sample=0,
        token_ids=(2, 3),
        behavior_logps=(-1.0, -1.0),
        text="",
        finish=Finish.STOP,
        version_min=0,
        version_max=0,
        seed=0,
    )
    score = Score(value=1.0, parts={}, verdict=Verdict(correct=True, reason=Reason.EQUAL))
    return Group(prompt=prompt, members=(ScoredRollout(rollout=rollout, score=score),))


def test_times_and_rates_of_a_step_by_hand() -> None:
    data = StepData(
        sampled=[group()],
        groups=[group()],
        baseline_of_group={},
        partial=(),
        num_tokens=30,
        metrics={"data/pass_rate": 0.25},
        rollout_s=2.0,
        grade_s=1.0,
    )
    measured = {"train/entropy": mean(6.0, 12), "train/lr": Measurement(0.1)}
    report = StepReport(measurements=measured, num_updates=1, num_tokens=100)
    metrics = step_metrics(data, report, version=3, update_s=5.0)
    assert {name: value for name, value in metrics.items() if not name.startswith("rollout/")} == pytest.approx(
        {
            "train/entropy": 6 / 12,
            "train/lr": 0.1,
            "data/pass_rate": 0.25,
            "time/rollout_s": 2.0,
            "time/grade_s": 1.0,
            "time/update_s": 5.0,
            "time/step_s": 2.0 + 1.0 + 5.0,
            "perf/rollout_tokens_per_s": 30 / 2.0,
            "perf/train_tokens_per_s": 100 / 5.0,
        }
    )
    assert metrics["rollout/response_length"] == 2
    assert metrics["rollout/version_lag"] == 3  # version 0 sampled both tokens
