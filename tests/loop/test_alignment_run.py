"""Every step of a run compares sampler and trainer, not only the first."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from toy_runs import toy_config

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


def break_from_the_third_step(monkeypatch):
    """From its third batch on, the trainer gets log-probs that are off by 0.2 nats per token."""
    batch, calls = LocalTrainer.batch, []

    def broken_from_the_third(self, samples, **options):
        calls.append(1)
        gap = 0.2 if len(calls) > 2 else 0.0
        shifted = [
            dataclasses.replace(each, behavior_logps=[logp - gap for logp in each.behavior_logps]) for each in samples
        ]
        return batch(self, shifted, **options)

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


def test_with_a_lag_the_sampler_is_compared_with_the_weights_that_it_had(tmp_path):
    """The step that is a multiple of ten has both metrics: equal weights agree, and the policy has moved since."""
    rows = read_jsonl(run_pipeline(toy_config(tmp_path, LAGGED)) / "rl" / "metrics.jsonl")
    assert [row["step"] for row in rows if "align/mean_exp_gap" in row] == [1, 10]
    assert [row["step"] for row in rows if "align/lag" in row] == list(range(2, 12))
    assert rows[9]["align/max_gap"] < 1e-4
    assert rows[9]["align/lag"] > 1.0001


def test_a_sampler_that_goes_wrong_with_a_lag_stops_the_run_at_the_tenth_step(tmp_path, monkeypatch):
    break_from_the_third_step(monkeypatch)
    config = toy_config(tmp_path, LAGGED)
    with pytest.raises(AlignmentError, match=r"^step 10: .* is 1\.221.* Step 9 is saved in "):
        run_pipeline(config)
    with pytest.raises(AlignmentError, match=r"^step 10: "):
        run_pipeline(config, resume=True)  # the broken trainer has already seen two steps


def test_the_first_step_of_a_resumed_run_with_a_lag_is_checked_too(tmp_path, monkeypatch):
    config = toy_config(tmp_path, {**LAGGED, "train": {"steps": 4, "decay_steps": 0}})
    run_pipeline(config)
    longer = toy_config(tmp_path, {**LAGGED, "train": {"steps": 6, "decay_steps": 0}})
    monkeypatch.setattr(LocalTrainer, "batch", shifted(LocalTrainer.batch))
    with pytest.raises(AlignmentError, match=r"^step 5: .* is 1\.221"):
        run_pipeline(longer, resume=True, allow_changes=True)


def shifted(batch):
    def shifted_batch(self, samples, **options):
        rows = [dataclasses.replace(row, behavior_logps=[logp - 0.2 for logp in row.behavior_logps]) for row in samples]
        return batch(self, rows, **options)

    return shifted_batch
