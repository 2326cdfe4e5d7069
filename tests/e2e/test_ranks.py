"""Whole runs on trainer ranks: they train as one process does, and survive the loss of a rank."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from toy_runs import toy_config

from ansatz.cluster.actor import ProcessId
from ansatz.cluster.ray import RayCluster
from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl
from ansatz.train.checkpoint import list_checkpoints
from ansatz.train.distributed import DistributedTrainer
from ansatz.train.placement import read_tensors
from ansatz.train.rank_group import RankGroup
from ansatz.train.trainer import TRAINING
from benchmarks.faults.fingerprint import untimed

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

CHANGES: dict[str, Any] = {
    "data": {"sft": None},
    "rewards": {f"{Path(__file__).parents[2]}/tests/loop/user_rewards.py:every_other": {}},
    "train": {"steps": 12, "lr": 1e-3},
    "save": {"every": 5, "tensorboard": False},
    "evaluate": {"every": 0},
}
KILLED_IN, SAVED_AT = 7, 5
LETTERS = ["a", "e", "i", "o"]  # random weights rarely end a response themselves
BEFORE_RL: dict[str, Any] = {
    **CHANGES,
    "data": {},
    "stages": ["reward_model", "sft", "preference"],
    "reward_model": {
        "kind": "process",
        "problems": 6,
        "samples_per_prompt": 4,
        "steps": 3,
        "batch_size": 3,
        "heldout_problems": 2,
        "heldout_samples": 2,
        "slips": {"source": "word_problems", "split": "heldout", "count": 8, "slip_rate": 0.5, "max_value": 50},
    },
    "sft": {"steps": 2},
    "preference": {
        "pairs": {"problems": 4, "samples_per_prompt": 4, "batch": 2, "stop": LETTERS},
        "steps": 3,
        "batch_size": 4,
        "lr": 1e-3,
        "warmup_steps": 0,
    },
}


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    """One Ray for all runs of this file: a run uses the Ray that its process is connected to."""
    owner = RayCluster()
    yield
    owner.close()


def run(folder: Path, changes: dict[str, Any] | None = None, *, resume: bool = False, **cluster: Any) -> Path:
    """The run folder."""
    settings = {"start": 120.0, **cluster}
    return run_pipeline(toy_config(folder, {**(changes or CHANGES), "cluster": settings}), resume=resume)


def metrics_of(stage: Path) -> list[Any]:
    """The rows of all steps, without times and without what a restart may change."""
    return untimed(read_jsonl(stage / "metrics.jsonl"))


def bits_of(stage: Path) -> dict[str, Any]:
    """What must be the same after a loss: the last model, the rollouts of all steps, and the metrics."""
    files = [list_checkpoints(stage)[-1] / "model.safetensors", *sorted((stage / "samples").iterdir())]
    return {"metrics": metrics_of(stage), **{file.name: file.read_bytes() for file in files}}


def assert_agree(stage: Path, expected: Path, *, from_step: int = 1) -> None:
    """The losses differ by at most 1e-6, and the last weights by at most 1e-6 of their norm."""
    rows, wanted = metrics_of(stage), metrics_of(expected)
    assert [row["step"] for row in rows] == [row["step"] for row in wanted]
    for row, reference in zip(rows, wanted, strict=True):
        if row["step"] >= from_step and "train/loss" in reference:
            assert row["train/loss"] == pytest.approx(reference["train/loss"], rel=1e-6, abs=1e-6)
    found, reference = (load_file(list_checkpoints(each)[-1] / "model.safetensors") for each in (stage, expected))
    vectors = [torch.cat([each[name].flatten() for name in reference]) for each in (found, reference)]
    assert (vectors[0] - vectors[1]).norm() / vectors[1].norm() < 1e-6


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("undisturbed"), trainers=2, workers=1) / "rl"


def test_two_ranks_train_as_one_process_does(undisturbed: Path, tmp_path: Path):
    assert_agree(undisturbed, run(tmp_path) / "rl")


def test_the_stages_before_rl_train_on_two_ranks_as_in_one_process(tmp_path: Path):
    alone, on_ranks = run(tmp_path / "alone", BEFORE_RL), run(tmp_path / "ranks", BEFORE_RL, trainers=2)
    for stage in BEFORE_RL["stages"]:
        assert_agree(on_ranks / stage, alone / stage)


@dataclass(slots=True)
class Loss:
    """A loss of rank 1. gone_s: from the signal until no rank was alive."""

    ranks: list[ProcessId]
    sent: float
    gone_s: float = float("inf")


@contextmanager
def ranks_lost(signals: dict[int, signal.Signals], *, run_dir: Path, copy: Path) -> Iterator[list[Loss]]:
    """Rank 1 gets a signal while the ranks make an update. Once the first loss is noticed, and before the ranks are
    started again, the run folder is copied.

    signals: by the number of the update, from 1; those that are repeated after a loss count again.
    """
    losses, updates = list[Loss](), list[str]()
    gather, pause = RankGroup._gather, RankGroup.pause

    def harm(self: RankGroup, expected: dict[str, Any], limit_s: float, *, doing: str) -> dict[str, Any]:
        if doing == "update":  # the ranks have the call, and the driver waits for them
            updates.append(doing)
            if (number := signals.get(len(updates))) is not None:
                ranks = [self._cluster._workers[worker].process for worker in self.workers]  # pyright: ignore
                losses.append(Loss(ranks=ranks, sent=time.monotonic()))
                os.kill(ranks[1].pid, number)
        return gather(self, expected, limit_s, doing=doing)

    def look(self: RankGroup, seconds: float) -> None:
        while any(rank.is_alive() for rank in losses[-1].ranks) and time.monotonic() < losses[-1].sent + 60:
            time.sleep(0.01)
        losses[-1].gone_s = time.monotonic() - losses[-1].sent
        if not copy.exists():
            shutil.copytree(run_dir, copy)
        pause(self, seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RankGroup, "_gather", harm)
        patch.setattr(RankGroup, "pause", look)
        yield losses


@pytest.fixture(scope="module")
def stopped(undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder as it was when rank 1 had been killed in step 7. The run itself went on, lost a rank to SIGTERM in
    step 10 (the twelfth update, as 6 and 7 are repeated), and has ended in the same bits."""
    folder = tmp_path_factory.mktemp("killed")
    copy, signals = folder / "copy", {KILLED_IN: signal.SIGKILL, 12: signal.SIGTERM}
    with ranks_lost(signals, run_dir=folder / "runs" / "toy", copy=copy) as losses:
        ended = run(folder, trainers=2) / "rl"
    print("no rank was alive", *(f"{loss.gone_s:.1f}" for loss in losses), "s after the signals")
    assert len(losses) == 2
    assert all(loss.gone_s < 15 for loss in losses)
    assert bits_of(ended) == bits_of(undisturbed)
    assert [row["step"] for row in metrics_of(copy / "rl")] == [*range(1, KILLED_IN)]
    assert list_checkpoints(copy / "rl")[-1].name == f"step-{SAVED_AT:06d}"
    return copy


def test_a_reward_model_ends_in_the_same_bits_after_the_loss_of_a_rank(tmp_path: Path):
    changes = {**BEFORE_RL, "stages": ["reward_model"], "sft": {"steps": 0}, "save": {"every": 1, "tensorboard": False}}
    del changes["preference"]
    undisturbed = run(tmp_path / "undisturbed", changes, trainers=2) / "reward_model"
    folder = tmp_path / "killed"
    with ranks_lost({3: signal.SIGKILL}, run_dir=folder / "runs" / "toy", copy=tmp_path / "copy") as losses:
        ended = run(folder, changes, trainers=2) / "reward_model"
    assert len(losses) == 1
    assert metrics_of(ended) == metrics_of(undisturbed)
    models = [list_checkpoints(stage)[-1] / "model.safetensors" for stage in (undisturbed, ended)]
    assert models[0].read_bytes() == models[1].read_bytes()


@pytest.mark.parametrize("size", [2, 1, 4])
def test_a_run_whose_rank_was_killed_is_resumed_on_any_number_of_ranks(
    undisturbed: Path, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
):
    shutil.copytree(stopped, tmp_path / "runs" / "toy")
    restore, loaded = DistributedTrainer.restore, tmp_path / "loaded"

    def restore_and_save(self: DistributedTrainer, folder: Path, state: Any) -> None:
        restore(self, folder, state)
        (loaded / TRAINING).mkdir(parents=True)
        self.save(loaded)

    monkeypatch.setattr(DistributedTrainer, "restore", restore_and_save)
    resumed = run(tmp_path, resume=True, trainers=size) / "rl"
    assert_same_state(loaded, list_checkpoints(stopped / "rl")[-1])
    if size == 2:
        assert bits_of(resumed) == bits_of(undisturbed)
    assert_agree(resumed, undisturbed, from_step=SAVED_AT + 1)


def assert_same_state(loaded: Path, saved: Path) -> None:
    """Weights and Adam's moments, bit for bit."""
    states = [
        {**load_file(each / "model.safetensors"), **read_tensors(each / TRAINING, "optimizer", like={})}
        for each in (loaded, saved)
    ]
    assert states[0].keys() == states[1].keys()
    assert len(states[0]) > 2 * len(load_file(saved / "model.safetensors"))
    for name, value in states[1].items():
        assert torch.equal(states[0][name], value), name
