"""Signals to the real command while its trainer is on ranks: it saves, ends with code 75, and is resumed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from toy_runs import REPOSITORY, command, toy_recipe

from ansatz.track.jsonl import read_jsonl
from ansatz.train.checkpoint import list_checkpoints
from benchmarks.faults.fingerprint import differences, without_older_checkpoints
from benchmarks.faults.processes import OwnProcess, descendants, left_alive

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

CHANGES: dict[str, Any] = {
    "data": {"sft": None},
    "rewards": {f"{REPOSITORY}/tests/loop/user_rewards.py:every_other": {}},
    "train": {"steps": 40, "updates_per_step": 2},
    "save": {"every": 100, "tensorboard": False},
    "evaluate": {"every": 0},
    "cluster": {"trainers": 2},
}


def steps_of(run: Path) -> int:
    path = run / "rl" / "metrics.jsonl"
    return len(read_jsonl(path)) if path.exists() else 0


def wait_for_steps(run: Path, count: int, process: OwnProcess) -> None:
    deadline = time.monotonic() + 120
    while steps_of(run) < count:
        assert process.process.poll() is None, process.error()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_run_that_is_stopped_twice_ends_in_the_same_bits(tmp_path: Path):
    """SIGTERM to the command alone, as a scheduler sends it; then Ctrl-C, which the whole process group gets."""
    (tmp_path / "whole").mkdir()
    code, _, error = command("train", toy_recipe(tmp_path / "whole", CHANGES))
    assert code == 0, error
    whole, run = tmp_path / "whole" / "runs" / "toy", tmp_path / "runs" / "toy"
    arguments: list[str | Path] = ["train", toy_recipe(tmp_path, CHANGES)]
    for number, send in ((signal.SIGTERM, os.kill), (signal.SIGINT, os.killpg)):
        process, before = OwnProcess(*arguments), steps_of(run)
        wait_for_steps(run, before + 4, process)
        time.sleep(0.03)  # into the step
        below, sent = descendants(process.pid), time.monotonic()
        send(process.pid, number)
        code = process.wait()
        print(f"{number.name}: code {code} after {time.monotonic() - sent:.1f} s")
        assert code == 75, process.error()
        assert f"stopped by {number.name}. Step" in process.error()
        assert left_alive(below, within_s=10) == ()
        assert list_checkpoints(run / "rl")[-1].name == f"step-{steps_of(run):06d}"
        arguments = ["train", "--resume", run]
    code, _, error = command(*arguments)
    assert code == 0, error
    assert without_older_checkpoints(differences(whole, run), whole) == []
