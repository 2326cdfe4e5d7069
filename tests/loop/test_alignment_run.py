"""Every step of a run compares sampler and trainer, not only the first."""

from __future__ import annotations

import dataclasses

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
