"""A whole toy run with every sampling option of a recipe: sampler and trainer agree on the log-probs of each step."""

import json
from pathlib import Path

import pytest
from toy_runs import toy_config

from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl
from ansatz.types import Finish, Rollout, scored_from_json

ROLLOUT = {
    "max_response_tokens": 40,
    "min_response_tokens": 4,
    "min_p": 0.001,
    "top_k": 300,
    "stop": ["q", "1"],
    "thinking_budget": 6,
}


def saved_rollouts(run: Path) -> list[Rollout]:
    lines = [
        line for path in sorted((run / "rl" / "samples").glob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    return [scored_from_json(json.loads(line)).rollout for line in lines]


def test_a_run_with_limits_stops_and_a_thinking_budget_is_aligned_and_leaves_forced_tokens_out(tmp_path):
    run = run_pipeline(toy_config(tmp_path, {"rollout": ROLLOUT, "save": {"tensorboard": False}}))
    rollouts, rows = saved_rollouts(run), read_jsonl(run / "rl" / "metrics.jsonl")
    assert [row["align/max_gap"] for row in rows] == pytest.approx([0.0] * 4, abs=1e-3)
    num_sampled = sum(sum(rollout.sampled_mask or [True] * rollout.num_tokens) for rollout in rollouts)
    assert num_sampled < sum(rollout.num_tokens for rollout in rollouts)
    assert sum(row["train/tokens"] for row in rows) == num_sampled
    assert {rollout.finish for rollout in rollouts} >= {Finish.STOP, Finish.BUDGET}
    assert {rollout.min_response_tokens for rollout in rollouts} == {4}
