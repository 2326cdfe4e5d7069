"""Flat rows of rollouts: what they hold, how they are read back, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from made_up import problem, scored

from ansatz.errors import DataError
from ansatz.track.jsonl import write_jsonl
from ansatz.track.rollout_rows import read_responses, rollout_row
from ansatz.types import Finish, Reason, ScoredRollout


def row(of: ScoredRollout, *, temperature: float = 1.0):
    return rollout_row(of, group="rl/50/heldout/7", noise_step=4, temperature=temperature)


def test_a_row_is_flat_and_read_back_as_the_response(tmp_path: Path):
    of = scored(problem(index=3), sample=2, reward=0.25, reason=Reason.DIFFERENT, finish=Finish.LENGTH, text="x #### 7")
    rows = [row(of), row(of, temperature=0.0)]
    assert [each["id"] for each in rows] == ["rl/50/heldout/7/2", "rl/50/heldout/7/greedy"]
    assert rows[0]["mean_logp"] == -0.5
    write_jsonl(tmp_path / "heldout-000050.jsonl", rows)
    sampled, greedy = read_responses(tmp_path / "heldout-000050.jsonl")
    assert (sampled.problem, sampled.sample, sampled.text, sampled.finish) == ("p3", 2, "x #### 7", Finish.LENGTH)
    assert sampled.verdict == of.score.verdict
    assert (sampled.greedy, greedy.greedy) == (False, True)
    assert sampled.noise == (0, 4, "p3", 2)


def test_the_mean_of_log_probs_is_over_the_tokens_that_the_policy_sampled():
    of = scored(token_ids=(1, 2, 3))
    rollout = dataclasses.replace(
        of.rollout, behavior_logps=(-1.0, 0.0, -3.0), sampled_mask=(True, False, True), versions=(2, 2, 2)
    )
    assert row(dataclasses.replace(of, rollout=rollout))["mean_logp"] == -2.0


def test_a_reward_is_stored_under_the_name_that_it_has_in_the_metrics():
    parts = {"/home/me/p/rewards.py:brief": 1.0, "a/rewards.py:long": 0.5, "b/rewards.py:long": math.nan, "math": 0.0}
    stored = row(scored(parts=parts))["parts"]
    assert stored == {"rewards.py:brief": 1.0, "a/rewards.py:long": 0.5, "b/rewards.py:long": None, "math": 0.0}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_stored_as_null(value: float):
    of = scored(reward=value)
    stored = json.loads(json.dumps(row(of), allow_nan=False))
    assert stored["reward"] is None
    assert stored["parts"] == {"accuracy": None}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("problem", 3), ("sample", True), ("sample", "0"), ("correct", 1), ("reason", "nonsense"), ("text", None)],
        *[("finish", ""), ("temperature", None), ("tokens", 1.5), ("extracted", 4)],
    ],
)
def test_a_damaged_row_is_named(tmp_path: Path, key: str, value: object):
    file = tmp_path / "heldout-000050.jsonl"
    write_jsonl(file, [row(scored()), {**row(scored()), key: value}])
    with pytest.raises(DataError, match=r"heldout-000050\.jsonl, line 2"):
        read_responses(file)
