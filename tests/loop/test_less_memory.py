"""A whole run with every setting that saves memory, through the pipeline."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from toy_runs import toy_config
from transformers import AutoModelForCausalLM

from ansatz.errors import ConfigError
from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl

REWARD = f"{Path(__file__).parent / 'user_rewards.py'}:every_other"


def test_a_run_with_adapters_checkpointing_and_8_bit_moments_goes_through_and_its_stages_feed_each_other(tmp_path):
    changes = {
        "model": {"lora": {"rank": 2}, "checkpointing": True},
        "algorithm": {"preset": "grpo", "kl_coef": 0.1},
        "sft": {"steps": 2},
        "train": {"steps": 2, "optimizer": {"name": "adamw_8bit"}},
        "rewards": {"math_answer": {"weight": 0}, REWARD: {}},
        "evaluate": {"every": 0},
    }
    run = run_pipeline(toy_config(tmp_path, changes))
    rows = read_jsonl(run / "rl" / "metrics.jsonl")
    assert rows[0]["train/kl_ref"] == 0.0
    assert rows[-1]["train/kl_ref"] > 0.0
    assert all(row["align/mean_exp_gap"] < 1.001 for row in rows)
    models = [
        AutoModelForCausalLM.from_pretrained(folder).state_dict()
        for folder in (
            run / "model",
            run / "sft/checkpoints/step-000002",
            json.loads((run / "summary.json").read_text())["model"],
        )
    ]
    name, first = "model.layers.0.mlp.up_proj.weight", models[0]
    for before, after in itertools.pairwise(models):
        assert not torch.equal(after[name], before[name])
        assert torch.linalg.matrix_rank((after[name] - first[name]).double(), rtol=1e-3) == 2  # of one adapter
        assert torch.equal(after["model.embed_tokens.weight"], before["model.embed_tokens.weight"])


def test_a_wrong_setting_is_refused_before_anything_is_written(tmp_path):
    for changes in ({"model": {"lora": {"rnak": 2}}}, {"train": {"optimizer": {"name": "sgd"}}}):
        with pytest.raises(ConfigError, match=r"rnak|sgd"):
            run_pipeline(toy_config(tmp_path, changes))
    assert not (tmp_path / "runs").exists()
