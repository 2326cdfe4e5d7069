"""Whole runs on Ray workers: the same bits as in one process, whatever happens to the workers."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from toy_runs import REPOSITORY, toy_config

from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl
from benchmarks.faults.fingerprint import untimed

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

CHANGES: dict[str, Any] = {
    "rewards": {f"{REPOSITORY}/tests/loop/user_rewards.py:every_other": {}},
    "rollout": {"lag": 2, "prompts_per_step": 8},
    "algorithm": {"preset": "grpo", "correction": "truncate"},
    "train": {"steps": 8},
    "evaluate": {"every": 4},
}


def run(folder: Path, changes: dict[str, Any]) -> tuple[dict[str, str], list[Any]]:
    """Hashes of the last model and of all rollouts, and the metrics without times."""
    run_dir = run_pipeline(toy_config(folder, {**CHANGES, **changes}))
    stage = run_dir / "rl"
    files = [stage / "checkpoints" / "step-000008" / "model.safetensors", *sorted((stage / "samples").iterdir())]
    hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return hashes, untimed(read_jsonl(stage / "metrics.jsonl"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory):
    hashes, metrics = run(tmp_path_factory.mktemp("inline"), {})
    assert len(set(hashes.values())) == 9
    return hashes, metrics


def workers_of_this_process() -> list[psutil.Process]:
    found = list[psutil.Process]()
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name().startswith("ray::_Actor"):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_give_the_bits_of_one_process(tmp_path: Path, undisturbed, workers: int):
    assert run(tmp_path, {"cluster": {"workers": workers}}) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_is_killed_or_stopped_changes_no_bit(tmp_path: Path, undisturbed, number: signal.Signals):
    metrics, hit = tmp_path / "runs" / "toy" / "rl" / "metrics.jsonl", list[int]()

    def harm() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not hit:
            if metrics.exists() and len(read_jsonl(metrics)) >= 2 and (workers := workers_of_this_process()):
                hit.append(workers[0].pid)
                os.kill(workers[0].pid, number)
            time.sleep(0.02)

    thread = threading.Thread(target=harm)
    thread.start()
    limits = {"workers": 2, "probe": 1.0, "lease": 3.0, "start": 120.0, "stall": 400.0}
    assert run(tmp_path, {"cluster": limits}) == undisturbed
    thread.join()
    assert hit
    assert not psutil.pid_exists(hit[0]) or psutil.Process(hit[0]).status() == psutil.STATUS_ZOMBIE
    assert workers_of_this_process() == []
