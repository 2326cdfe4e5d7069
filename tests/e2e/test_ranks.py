"""Whole runs on trainer ranks, with a worker that samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from toy_runs import toy_config

from ansatz.cluster.ray import RayCluster
from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl
from ansatz.train.checkpoint import list_checkpoints
from benchmarks.faults.fingerprint import untimed

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

CHANGES: dict[str, Any] = {
    "rewards": {f"{Path(__file__).parents[2]}/tests/loop/user_rewards.py:every_other": {}},
    "train": {"steps": 12, "lr": 1e-3},
    "save": {"every": 5},
    "evaluate": {"every": 0},
}


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    """One Ray for all runs of this file: a run uses the Ray that its process is connected to."""
    owner = RayCluster()
    yield
    owner.close()


def run(folder: Path, *, resume: bool = False, **cluster: Any) -> Path:
    """The folder of the RL stage."""
    settings = {"workers": 1, "start": 120.0, **cluster}
    return run_pipeline(toy_config(folder, {**CHANGES, "cluster": settings}), resume=resume) / "rl"


def metrics_of(stage: Path) -> list[Any]:
    """The rows of all steps, without times and without what a restart may change."""
    return untimed(read_jsonl(stage / "metrics.jsonl"))


def weights_of(stage: Path) -> dict[str, torch.Tensor]:
    return load_file(list_checkpoints(stage)[-1] / "model.safetensors")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("undisturbed"), trainers=2)


def test_two_ranks_train_as_one_process_does(undisturbed: Path, tmp_path: Path):
    alone = run(tmp_path)
    for row, expected in zip(metrics_of(undisturbed), metrics_of(alone), strict=True):
        assert row["train/loss"] == pytest.approx(expected["train/loss"], rel=1e-6, abs=1e-6)
    weights, expected = weights_of(undisturbed), weights_of(alone)
    vectors = [torch.cat([each[name].flatten() for name in expected]) for each in (weights, expected)]
    assert (vectors[0] - vectors[1]).norm() / vectors[1].norm() < 1e-6
