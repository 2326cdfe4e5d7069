"""A recipe from start to finish with a worker on a Ray of this machine, which the command starts and ends.

Starting Ray takes longer than the runs, so these tests belong to `make test-cluster`.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil
import pytest
from toy_runs import command, different_results, start, toy_config, toy_recipe

from ansatz.loop.pipeline import run_pipeline

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

CHANGES = {
    "data": {"sft": None},
    "rollout": {"lag": 1},
    "algorithm": {"preset": "grpo", "correction": "truncate"},
    "train": {"steps": 2},
    "save": {"tensorboard": False},
}


def ray_processes() -> set[int]:
    """Those that run. One that has ended can stay as a zombie, if the first process of a machine collects none."""
    found = [process for process in psutil.process_iter() if process.name() in ("raylet", "gcs_server")]
    return {process.pid for process in found if process.status() != psutil.STATUS_ZOMBIE}


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


def kill_part_of_ray(process: subprocess.Popen[str], name: str) -> None:
    (part,) = [child for child in psutil.Process(process.pid).children(recursive=True) if child.name() == name]
    part.kill()


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("part", ["raylet", "gcs_server"])
@pytest.mark.parametrize("of", [{"workers": 1}, {"workers": 1, "trainers": 2}], ids=["workers", "ranks"])
def test_a_run_whose_ray_is_killed_says_so_and_ends_with_its_step_saved(tmp_path: Path, part: str, of: dict[str, int]):
    pytest.importorskip("ray")
    changes = {**CHANGES, "train": {"steps": 12}, "save": {"tensorboard": False, "every": 2}, "cluster": of}
    (tmp_path / "left_alone").mkdir()
    run, before = tmp_path / "runs" / "toy", ray_processes()
    process = start("train", toy_recipe(tmp_path, changes))
    wait_for(run / "rl" / "checkpoints" / "step-000002", process)
    kill_part_of_ray(process, part)
    _, error = process.communicate(timeout=200)
    assert process.returncode == 75, error
    assert "ansatz: Ray is gone: " in error
    assert f"Resume with: ansatz train --resume {run}" in error
    assert ray_processes() <= before
    code, _, error = command("train", "--resume", run)
    assert code == 0, error
    if "trainers" not in of:
        assert (
            different_results(run_pipeline(toy_config(tmp_path / "left_alone", {**changes, "cluster": {}})), run) == []
        )
