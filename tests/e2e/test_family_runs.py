"""The families of docs/models.md in whole runs at toy size: three RL steps, resume, reload, and `ansatz check`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import some_sequences, tiny_folder
from toy_runs import toy_config

from ansatz.certify.check import check_recipe
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config
from ansatz.models.load import head_logits, load_policy
from ansatz.track.jsonl import read_jsonl
from tools.model_reference import FAMILIES, Family

WORKING = [family for family in FAMILIES if not family.refused]
QUICK = [family for family in WORKING if family.name in ("gpt-oss", "DeepSeek-V3, R1")]

families = pytest.mark.parametrize("family", WORKING, ids=lambda family: family.name)


def recipe(folder: Path, family: Family, *, out: str, steps: int = 3) -> Any:
    """Three steps on random weights. The reward is 1 for every response of odd length."""
    rewards = folder / "rewards.py"
    rewards.write_text("def odd_length(rollouts):\n    return [float(len(each.text) % 2) for each in rollouts]\n")
    model = folder / "model"
    if not model.exists():
        tiny_folder(model, family.config, **family.settings)
    changes = {
        "out": str(folder / out),
        "data": {"sft": None, "template": "none"},
        "model": {"path": str(model)},
        "rollout": {"max_prompt_tokens": 64, "max_response_tokens": 24, "prompts_per_step": 2},
        "rewards": {"math_answer": {"weight": 0}, f"{rewards}:odd_length": {}},
        "train": {"steps": steps, "lr": 1e-2, "warmup_steps": 0},
        "evaluate": {"problems": 2, "every": 0},
        "save": {"every": 1},
    }
    return toy_config(folder, changes)


def digest(run: Path) -> str:
    file = run / "rl" / "checkpoints" / "step-000003" / "model.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()


def trains_resumes_and_reloads(folder: Path, family: Family) -> None:
    run = run_pipeline(recipe(folder, family, out="whole"))
    rows = read_jsonl(run / "rl" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["align/mean_exp_gap"] < 1.0001 for row in rows)  # of sampler and trainer, in float32
    assert any(row["train/grad_norm"] > 0 for row in rows)
    run_pipeline(recipe(folder, family, out="halted", steps=2))
    again = run_pipeline(resume_config(folder / "halted" / "toy", {"train.steps": "3"}), resume=True)
    assert digest(again) == digest(run)

    saved = run / "rl" / "checkpoints" / "step-000003"
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        saved, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    token_BL = torch.tensor(some_sequences(30))
    position_BL = torch.arange(30)[None]
    policy = load_policy(saved)
    with torch.no_grad():
        own = head_logits(policy.hidden(token_BL, position_BL), policy.head.weight, softcap=policy.softcap)
        torch.testing.assert_close(own, model.eval()(token_BL).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.e2e
@pytest.mark.parametrize("family", QUICK, ids=lambda family: family.name)
def test_a_family_with_attention_of_its_own_trains_resumes_and_reloads(tmp_path: Path, family: Family) -> None:
    trains_resumes_and_reloads(tmp_path, family)


@pytest.mark.slow
@families
def test_every_family_trains_resumes_and_reloads(tmp_path: Path, family: Family) -> None:
    trains_resumes_and_reloads(tmp_path, family)


@pytest.mark.slow
@families
def test_every_family_passes_check(tmp_path: Path, family: Family) -> None:
    config = recipe(tmp_path, family, out="checked")
    results = list(check_recipe(config, tmp_path / "built", num_prompts=2))
    assert [(row.what, row.measured) for row in results if not row.passed] == []
