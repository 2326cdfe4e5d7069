"""Whole runs with vLLM: build the model, sample, train, evaluate, and start from a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engines import segments
from toy_runs import command, toy_recipe

REWARD = """
from ansatz.rewards.base import RewardResult

def first_token(rollouts):
    return [RewardResult(value=float(rollout.token_ids[0] % 2)) for rollout in rollouts]
"""
pytestmark = pytest.mark.vllm


@pytest.mark.parametrize("mode", ["colocated", "server"])
def test_two_steps_of_rl_are_aligned_and_leave_nothing(tmp_path: Path, mode: str):
    segments_before = segments()
    reward = tmp_path / "mine.py"
    reward.write_text(REWARD)
    changes = {
        "data": {"sft": None},
        "model": {"tiny": {"head_dim": 32}},
        "rollout": {"engine": {"name": "vllm", "mode": mode, "max_concurrent": 16}, "top_k": 50},
        "rewards": {"math_answer": {}, f"{reward}:first_token": {}},
        "train": {"steps": 2, "lr": 1e-2, "warmup_steps": 0},
        "evaluate": {"every": 1},
    }
    code, out, err = command("train", toy_recipe(tmp_path, changes), timeout_s=400)
    assert code == 0, out + err
    rows = [json.loads(line) for line in (tmp_path / "runs/toy/rl/metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert rows[0]["train/grad_norm"] > 0
    assert all(row["align/max_gap"] < 1e-3 for row in rows)
    assert segments() <= segments_before


@pytest.mark.parametrize("mode", ["colocated", "server"])
def test_sft_then_rl_starts_vllm_from_a_checkpoint_of_the_run_and_another_run_from_that_of_rl(
    tmp_path: Path, mode: str
):
    """The folder of SFT holds rounded weights; RL pushes the float32 ones before it samples."""
    changes = {
        "model": {"tiny": {"head_dim": 32}},
        "sft": {"steps": 2},
        "rollout": {"engine": {"name": "vllm", "mode": mode, "max_concurrent": 16}},
        "train": {"steps": 1},
        "evaluate": {"every": 1},
        "save": {"dtype": "bfloat16"},
    }
    code, out, err = command("train", toy_recipe(tmp_path, changes), timeout_s=600)
    assert code == 0, out + err
    assert _largest_gap(tmp_path / "runs/toy/rl") < 1e-3

    last = tmp_path / "runs/toy/rl/checkpoints/step-000001"
    again = {**changes, "name": "again", "data": {"sft": None}, "model": {"path": str(last)}}
    code, out, err = command("train", toy_recipe(tmp_path, again), timeout_s=600)
    assert code == 0, out + err
    assert _largest_gap(tmp_path / "runs/again/rl") < 1e-3


def _largest_gap(folder: Path) -> float:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows
    return max(row["align/max_gap"] for row in rows)
