"""Every step of a run compares sampler and trainer, not only the first."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from lag_runs import results
from toy_runs import toy_config

from ansatz.config.load import merge
from ansatz.errors import AlignmentError
from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl
from ansatz.train.local import LocalTrainer

SHORT = {
    "data": {"sft": None},
    "rollout": {"max_response_tokens": 8},
    "evaluate": {"problems": 2, "every": 0},
    "save": {"every": 1, "tensorboard": False},
}


def break_from_the_third_step(monkeypatch, *, gap=0.2, groups=None):
    """From its third batch on, the trainer gets log-probs that are off: by `gap` nats per token, in those groups."""
    batch, calls = LocalTrainer.batch, []

    def broken_from_the_third(self, samples, **options):
        calls.append(1)
        return batch(self, shifted(samples, gap, groups) if len(calls) > 2 else samples, **options)

    monkeypatch.setattr(LocalTrainer, "batch", broken_from_the_third)


def test_a_sampler_that_goes_wrong_in_the_third_step_stops_the_run_there(tmp_path, monkeypatch):
    break_from_the_third_step(monkeypatch)
    config = toy_config(tmp_path, SHORT)
    with pytest.raises(AlignmentError, match=r"^step 3: .* is 1\.221., but train\.max_logprob_gap = 1\.05"):
        run_pipeline(config)
    rl = config.run_dir / "rl"
    assert [row["step"] for row in read_jsonl(rl / "metrics.jsonl")] == [1, 2]
    assert sorted(path.name for path in (rl / "checkpoints").iterdir()) == ["step-000001", "step-000002"]


def test_the_last_complete_step_is_saved_when_the_sampler_goes_wrong_between_two_checkpoints(tmp_path, monkeypatch):
    batch = LocalTrainer.batch
    break_from_the_third_step(monkeypatch)
    config = toy_config(tmp_path, {**SHORT, "save": {**SHORT["save"], "every": 4}})
    latest = config.run_dir / "rl" / "checkpoints" / "step-000002"
    with pytest.raises(AlignmentError, match=rf"^step 3: .* Step 2 is saved in {latest}\. Resume with: "):
        run_pipeline(config)
    assert [path.name for path in latest.parent.iterdir()] == [latest.name]
    monkeypatch.setattr(LocalTrainer, "batch", batch)
    run_pipeline(config, resume=True)
    assert [row["step"] for row in read_jsonl(config.run_dir / "rl" / "metrics.jsonl")] == [1, 2, 3, 4]


LAGGED = {
    **SHORT,
    "rollout": {"max_response_tokens": 8, "lag": 2},
    "algorithm": {"preset": "grpo", "correction": "truncate"},
    "rewards": {"math_answer": {"weight": 0}, f"{Path(__file__).with_name('user_rewards.py')}:every_other": {}},
    "train": {"steps": 11, "lr": 1e-3},
    "save": {"every": 4, "tensorboard": False},
}


def test_with_a_lag_the_sampler_is_compared_at_every_step_with_the_weights_that_it_had(tmp_path, monkeypatch):
    """Equal weights agree, although the policy has moved since. The comparison leaves no trace in the training."""
    compared = run_pipeline(toy_config(tmp_path / "compared", LAGGED))
    rows = read_jsonl(compared / "rl" / "metrics.jsonl")
    assert [row["step"] for row in rows if "align/mean_exp_gap" in row] == list(range(1, 12))
    assert [row["step"] for row in rows if "align/lag" in row] == list(range(2, 12))
    assert max(row["align/max_gap"] for row in rows) < 1e-4
    assert rows[9]["align/lag"] > 1.0001
    monkeypatch.setattr(LocalTrainer, "check_against", lambda self, load, batch, *, step: {})
    unseen = results(run_pipeline(toy_config(tmp_path / "not_compared", LAGGED)))
    seen = results(compared)
    for name in ("align/mean_exp_gap", "align/max_gap"):
        for row in (*seen["metrics"], *unseen["metrics"]):
            row.pop(name, None)
    assert seen == unseen


@pytest.mark.parametrize("lag", [1, 2])
def test_a_sampler_that_goes_wrong_with_a_lag_stops_the_run_at_that_step(tmp_path, monkeypatch, lag):
    break_from_the_third_step(monkeypatch, gap=0.3)
    config = toy_config(tmp_path, merge(LAGGED, {"rollout": {"lag": lag}}))
    with pytest.raises(AlignmentError, match=r"^step 3: .* is 1\.3499.* Step 2 is saved in "):
        run_pipeline(config)
    with pytest.raises(AlignmentError, match=r"^step 3: "):
        run_pipeline(config, resume=True)  # the broken trainer has already seen two steps


def test_a_fault_in_few_groups_is_seen_against_the_recent_level(tmp_path, monkeypatch):
    """One of eight groups is off by 0.25 nats. The mean over all tokens stays within the range and the limit."""
    break_from_the_third_step(monkeypatch, gap=0.25, groups=[5])
    groups = {"rollout": {"prompts_per_step": 8, "samples_per_prompt": 2}, "train": {"steps": 4}}
    run = run_pipeline(toy_config(tmp_path, merge(LAGGED, groups)))
    rows = read_jsonl(run / "rl" / "metrics.jsonl")
    assert rows[1]["align/mean_exp_gap"] < 1.0001
    assert 1.02 < rows[2]["align/mean_exp_gap"] < 1.05
    alarms = [event for event in read_jsonl(run / "rl" / "events.jsonl") if event.get("rule") == "gap"]
    assert [(event["step"], event["kind"]) for event in alarms] == [(3, "alarm")]


def test_the_first_step_of_a_resumed_run_with_a_lag_is_checked_too(tmp_path, monkeypatch):
    config = toy_config(tmp_path, {**LAGGED, "train": {"steps": 4, "decay_steps": 0}})
    run_pipeline(config)
    longer = toy_config(tmp_path, {**LAGGED, "train": {"steps": 6, "decay_steps": 0}})
    batch = LocalTrainer.batch
    monkeypatch.setattr(LocalTrainer, "batch", lambda self, rows, **options: batch(self, shifted(rows, 0.2), **options))
    with pytest.raises(AlignmentError, match=r"^step 5: .* is 1\.221"):
        run_pipeline(longer, resume=True, allow_changes=True)


def shifted(samples, gap, groups=None):
    """groups: indices of those that are off, in the order in which they come; all if None."""
    order = list(dict.fromkeys(row.group for row in samples))
    off = set(order) if groups is None else {order[index] for index in groups}
    return [
        dataclasses.replace(row, behavior_logps=[logp - gap * (row.group in off) for logp in row.behavior_logps])
        for row in samples
    ]
