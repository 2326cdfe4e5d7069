"""One adapter over the stages of a run: it may come from peft, and peft loads it onto the model of `model.path`."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from tiny_models import some_sequences, tiny_folder
from toy_runs import toy_config
from transformers import AutoModelForCausalLM

from ansatz.errors import ConfigError, ModelError
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config

EVERY_OTHER = f"{Path(__file__).with_name('user_rewards.py')}:every_other"
FILES = ("model.safetensors", "adapter/adapter_model.safetensors", "training/optimizer.safetensors")


def config_of(folder: Path, base: Path, **lora: Any):
    return toy_config(
        folder,
        {
            "model": {"path": str(base), "lora": lora},
            "data": {"template": "boxed"},
            "rewards": {"math_answer": {"weight": 0}, EVERY_OTHER: {}},
            "algorithm": {"preset": "grpo", "kl_coef": 0.1},
            "sft": {"steps": 1, "lr": 1e-2, "warmup_steps": 0},
            "train": {"steps": 2, "lr": 1e-2, "warmup_steps": 0},
            "rollout": {"max_prompt_tokens": 200, "prompts_per_step": 2, "max_response_tokens": 8},
            "evaluate": {"problems": 2, "every": 0, "max_response_tokens": 8},
            "save": {"every": 1, "best": False, "tensorboard": False},
        },
    )


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor(some_sequences(20))).logits


def adapted(base: Path, folder: Path) -> torch.Tensor:
    return logits(peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(folder)).eval())


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a base and an adapter that peft has written."""
    folder = tmp_path_factory.mktemp("given")
    base = tiny_folder(folder / "base")
    torch.manual_seed(2)
    model: Any = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), peft.LoraConfig(r=3, target_modules=["q_proj", "down_proj"])
    )
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder / "adapter")
    return folder


@pytest.fixture(scope="module")
def run(given: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = config_of(tmp_path_factory.mktemp("run"), given / "base", path=str(given / "adapter"))
    return run_pipeline(config)


def test_one_adapter_goes_through_all_stages_and_peft_loads_it_onto_the_base(given: Path, run: Path) -> None:
    seen = [adapted(given / "base", given / "adapter")]
    for place in ("model", "sft/checkpoints/step-000001", "rl/checkpoints/step-000002"):
        config = json.loads((run / place / "adapter" / "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == str(given / "base")
        seen.append(adapted(given / "base", run / place / "adapter"))
        assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(run / place)), seen[-1], atol=1e-4)
    assert torch.allclose(seen[1], seen[0], atol=1e-5)
    moved = [float((after - before).abs().max()) for before, after in itertools.pairwise(seen[1:])]
    assert min(moved) > 1e-3


def test_the_reference_of_a_later_stage_is_the_policy_at_its_start(run: Path) -> None:
    """Not the model below the adapters: the KL of the first step would then not be 0."""
    rows = [json.loads(line) for line in (run / "rl" / "metrics.jsonl").read_text().splitlines()]
    assert abs(rows[0]["train/kl_ref"]) < 1e-6
    assert rows[1]["train/kl_ref"] > 1e-6


@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_a_run_that_is_cut_off_ends_in_the_same_bits(run: Path, tmp_path: Path, stage: str) -> None:
    copy = shutil.copytree(run, tmp_path / "runs" / "toy")
    shutil.rmtree(copy / "rl" / "checkpoints" / "step-000002")
    (copy / "rl" / "done.json").unlink()
    if stage == "sft":  # killed before it began with RL
        shutil.rmtree(copy / "rl")
    run_pipeline(resume_config(copy), resume=True)
    for name in FILES:
        path = f"rl/checkpoints/step-000002/{name}"
        assert (copy / path).read_bytes() == (run / path).read_bytes()


def test_an_adapter_that_has_changed_is_noticed_by_a_resume(given: Path, run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "runs" / "toy")
    file = given / "adapter" / "adapter_model.safetensors"
    before = file.read_bytes()
    file.write_bytes(before[:-1] + b"\x01")
    try:
        with pytest.raises(ConfigError, match=r"adapter_model\.safetensors has changed"):
            run_pipeline(resume_config(copy), resume=True)
    finally:
        file.write_bytes(before)


def test_a_wrong_adapter_is_refused_before_anything_is_written(given: Path, tmp_path: Path) -> None:
    for lora, message in [
        ({"path": str(given / "base")}, r"model\.lora\.path = .* has no adapter_config\.json"),
        ({"path": str(given / "adapter"), "rank": 5}, r"model\.lora\.rank = 5, but the adapter in .* has 3"),
    ]:
        config = config_of(tmp_path, given / "base", **lora)
        with pytest.raises((ConfigError, ModelError), match=message):
            run_pipeline(config)
        assert not config.run_dir.exists()
