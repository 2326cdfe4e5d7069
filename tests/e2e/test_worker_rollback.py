"""A rollback by the watchdog in a run on workers: Ray ends with the stage, and starts again with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from lag_runs import REWARD, results
from toy_runs import toy_config

from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl
from ansatz.track.rollbacks import read_rollbacks

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]


def test_a_run_on_workers_has_their_counts_as_metrics_and_rolls_back_to_the_bits_of_one_process(tmp_path: Path):
    # The rule sees the whole rate in steps 6 and 7, and a lower one after the rollback.
    rate = {"metric": "train/lr", "above": 0.95e-3, "window": 2, "action": "rollback"}
    changes = {
        "data": {"sft": None},
        "rewards": {REWARD: {}},
        "algorithm": {"preset": "grpo", "correction": "truncate"},
        "evaluate": {"every": 0, "problems": 3},
        "rollout": {"lag": 1, "prompts_per_step": 4},
        "train": {
            "steps": 12,
            "lr": 1e-3,
            "warmup_steps": 5,
        },
        "watchdog": {"rules": {"rate": rate}},
        "save": {"every": 3},
    }
    inline = run_pipeline(toy_config(tmp_path / "inline", changes))
    on_workers = run_pipeline(toy_config(tmp_path / "workers", {**changes, "cluster": {"workers": 2}}))
    assert results(on_workers) == results(inline)
    assert len(read_rollbacks(on_workers / "rl")) == 1
    counts = read_jsonl(on_workers / "rl" / "metrics.jsonl")[-1]
    assert {name: counts[f"perf/workers/{name}"] for name in ("deaths", "lies", "redrawn_differs")} == {
        "deaths": 0,
        "lies": 0,
        "redrawn_differs": 0,
    }
