"""A whole toy run with every sampling option of a recipe: sampler and trainer agree on the log-probs of each step."""

from collections.abc import Sequence

import pytest
from toy_runs import toy_config

from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl
from ansatz.track.rollout_rows import StoredGroup
from ansatz.track.tracker import Tracker
from ansatz.types import Finish, Rollout

ROLLOUT = {
    "max_response_tokens": 40,
    "min_response_tokens": 4,
    "min_p": 0.001,
    "top_k": 300,
    "stop": ["q", "1"],
    "thinking_budget": 6,
}


def test_a_run_with_limits_stops_and_a_thinking_budget_is_aligned_and_leaves_forced_tokens_out(tmp_path, monkeypatch):
    rollouts: list[Rollout] = []
    store = Tracker.samples

    def keep(tracker: Tracker, step: int, groups: Sequence[StoredGroup]) -> None:
        rollouts.extend(member.rollout for each in groups for member in each.group.members)
        store(tracker, step, groups)

    monkeypatch.setattr(Tracker, "samples", keep)
    run = run_pipeline(toy_config(tmp_path, {"rollout": ROLLOUT, "save": {"tensorboard": False}}))
    rows = read_jsonl(run / "rl" / "metrics.jsonl")
    assert [row["align/max_gap"] for row in rows] == pytest.approx([0.0] * 4, abs=1e-3)
    num_sampled = sum(sum(rollout.sampled_mask or [True] * rollout.num_tokens) for rollout in rollouts)
    assert num_sampled < sum(rollout.num_tokens for rollout in rollouts)
    assert sum(row["train/tokens"] for row in rows) == num_sampled
    assert {rollout.finish for rollout in rollouts} >= {Finish.STOP, Finish.BUDGET}
    assert {rollout.min_response_tokens for rollout in rollouts} == {4}
