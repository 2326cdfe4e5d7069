"""A recipe from start to finish with a worker on a Ray of this machine, which the command starts and ends."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from toy_runs import command, different_results, toy_config, toy_recipe

from ansatz.loop.pipeline import run_pipeline

CHANGES = {
    "data": {"sft": None},
    "rollout": {"lag": 1},
    "algorithm": {"preset": "grpo", "correction": "truncate"},
    "train": {"steps": 2},
    "save": {"tensorboard": False},
}


def ray_processes() -> set[int]:
    return {process.pid for process in psutil.process_iter() if process.name() in ("raylet", "gcs_server")}


@pytest.mark.e2e
def test_a_recipe_runs_on_a_local_ray_to_the_bits_of_one_process(tmp_path: Path):
    pytest.importorskip("ray")
    (tmp_path / "inline").mkdir()
    inline, before = run_pipeline(toy_config(tmp_path / "inline", CHANGES)), ray_processes()
    code, _, error = command("train", toy_recipe(tmp_path, {**CHANGES, "cluster": {"workers": 1}}))
    assert code == 0, error
    assert ray_processes() <= before
    run = tmp_path / "runs" / "toy"
    assert different_results(inline, run) == []
    assert '"perf/workers/deaths": 0' in (run / "rl" / "metrics.jsonl").read_text()
