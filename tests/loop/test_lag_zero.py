"""Lag 0 in one process is the synchronous loop, bit for bit: weights, rollouts, and metrics without times."""

from __future__ import annotations

import pytest
from lag_runs import EVERYTHING, results
from reference.synchronous_loop import run_synchronously
from toy_runs import toy_config

from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.stages.rl import RlStage


@pytest.mark.parametrize(
    ("preset", "steps"),
    [
        ("grpo", 16),
        pytest.param("grpo", 30, marks=pytest.mark.slow),
        pytest.param("ppo", 30, marks=pytest.mark.slow),
        pytest.param("remax", 8, marks=pytest.mark.slow),
    ],
)
def test_lag_zero_gives_the_bits_of_the_synchronous_loop(tmp_path, monkeypatch, preset, steps):
    """With a curriculum, dynamic sampling and partial rollouts; with PPO also a critic, with ReMax greedy baselines."""
    runs = []
    for name in ("tickets", "synchronous"):
        if name == "synchronous":
            monkeypatch.setattr(RlStage, "run", run_synchronously)
        changes = {**EVERYTHING, "algorithm": {"preset": preset}, "train": {"steps": steps, "lr": 1e-3}}
        runs.append(results(run_pipeline(toy_config(tmp_path / name, changes))))
    assert len(runs[0]["metrics"]) == len(runs[0]["rollouts"]) == steps
    if steps >= 16:
        assert max(row["rollout/partial"] for row in runs[0]["metrics"]) > 0
        assert max(row["data/dynamic_sampling_rounds"] for row in runs[0]["metrics"]) > 0
    assert len(runs[0]["weights"]) >= 2
    for what, value in runs[0].items():
        assert value == runs[1][what], what


def test_lag_zero_gives_the_bits_of_the_synchronous_loop_when_a_problem_comes_twice_in_a_step(tmp_path, monkeypatch):
    """An epoch of 3 problems ends within a step of 4, and earlier rollouts are still partial."""
    changes = {**EVERYTHING, "data": {"sft": None, "train": {"count": 3}}, "train": {"steps": 8, "lr": 1e-3}}
    runs = [results(run_pipeline(toy_config(tmp_path / "tickets", changes)))]
    monkeypatch.setattr(RlStage, "run", run_synchronously)
    runs.append(results(run_pipeline(toy_config(tmp_path / "synchronous", changes))))
    assert runs[0] == runs[1]
