"""Adapters in the trainer: what is trained, what a checkpoint holds, and what a KL and a critic cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from learning import everything, rows, same
from peft import PeftModel
from tiny_models import some_sequences, tiny_folder, tiny_policy
from transformers import AutoModelForCausalLM

from ansatz.config.schema import TrainSection
from ansatz.errors import CheckpointError, ConfigError
from ansatz.models.load import load_policy
from ansatz.models.lora import add_adapters
from ansatz.objectives.build import build_objective
from ansatz.train import checkpoint
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.placement import use_exact_weights


def trainer_of(
    algorithm: dict[str, Any] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    rank: int = 4,
    seed: int = 0,
    **settings: Any,
) -> LocalTrainer:
    return LocalTrainer(
        add_adapters(tiny_policy(), rank=rank, seed=seed),
        build_objective(algorithm or {"preset": "grpo"}, max_response_tokens=9),
        settings=TrainSection(updates_per_step=2, **settings),
        dtype=dtype,
        schedule=Schedule(lr=1e-2),
    )


def train(trainer: LocalTrainer, *steps: int) -> None:
    for step in steps:
        trainer.update(trainer.batch(rows(step)), step=step)


def test_adapters_learn_what_is_rewarded_and_nothing_else_moves() -> None:
    trainer = trainer_of()
    frozen = {name: value.detach().clone() for name, value in trainer.policy.base.named_parameters()}
    batch = trainer.batch(rows(1))
    good_T = batch.mask_T & (batch.advantage_T > 0)
    before = trainer._logps(trainer.policy, batch.packed)[good_T].mean()
    train(trainer, *[1] * 8)
    after = trainer._logps(trainer.policy, batch.packed)[good_T].mean()
    assert after > before + 1.0  # nats a token
    assert all(torch.equal(value, frozen[name]) for name, value in trainer.policy.base.named_parameters())


def test_frozen_weights_are_held_once_in_the_compute_type() -> None:
    trainer = trainer_of({"preset": "ppo", "kl_coef": 0.1}, dtype=torch.bfloat16)
    assert all(parameter.dtype == torch.bfloat16 for parameter in trainer.policy.model.parameters())
    assert all(".lora_" in name for name in trainer.optimizer.masters)
    assert trainer.reference is not None
    assert trainer.critic is not None
    places = {parameter.data_ptr() for parameter in trainer.policy.model.parameters()}
    assert all(parameter.data_ptr() in places for parameter in trainer.reference.model.parameters())
    own_names = {
        name for name, value in trainer.critic.module.transformer.named_parameters() if value.data_ptr() not in places
    }
    assert own_names
    assert all(".lora_" in name for name in own_names)


def test_the_kl_is_to_the_model_without_adapters() -> None:
    trainer = trainer_of({"preset": "grpo", "kl_coef": 0.1})
    start = trainer._logps(trainer.policy, trainer.batch(rows(1)).packed)
    train(trainer, 1, 2)
    batch = trainer.batch(rows(1))
    assert torch.equal(batch.ref_logp_T, start)
    assert not torch.equal(trainer._logps(trainer.policy, batch.packed), start)


def test_a_reference_that_should_follow_the_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train.reference_update_interval = 2: with model.lora .* Set it to 0"):
        trainer_of({"preset": "grpo", "kl_coef": 0.1}, reference_update_interval=2)


@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit", "adamw_offload"])
@pytest.mark.parametrize("algorithm", [{"preset": "grpo", "kl_coef": 0.1}, {"preset": "ppo"}], ids=["kl", "critic"])
def test_a_restored_trainer_is_bit_identical_and_so_is_its_next_step(
    tmp_path: Path, algorithm: dict[str, Any], optimizer: str
) -> None:
    how = {"algorithm": algorithm, "dtype": torch.bfloat16, "optimizer": {"name": optimizer}}
    trainer, other = trainer_of(**how), trainer_of(**how, seed=1)
    train(trainer, 1, 2)
    saved = everything(trainer)
    path = checkpoint.save(tmp_path, step=2, trainer=trainer, state={}, keep=5)
    assert not (path / "training/reference.safetensors").exists()
    train(trainer, 3)

    assert not same(everything(other), saved)
    checkpoint.restore(path, trainer=other)
    assert same(everything(other), saved)
    train(other, 3)
    assert same(everything(other), everything(trainer))


def test_a_checkpoint_is_a_hugging_face_folder_with_the_adapters_merged(tmp_path: Path) -> None:
    trainer = trainer_of()
    train(trainer, 1, 2)
    path = checkpoint.save(tmp_path, step=2, trainer=trainer, state={}, keep=5)
    settings = json.loads((path / "adapter" / "adapter_config.json").read_text())
    assert settings["r"] == 4
    assert settings["target_modules"] == sorted(settings["target_modules"])  # the same file in every run
    tokens = torch.tensor(some_sequences(20))
    with torch.no_grad():
        merged = AutoModelForCausalLM.from_pretrained(path)(tokens).logits
        learned, base = trainer.policy.model(tokens).logits, trainer.policy.base(tokens).logits
    assert torch.allclose(merged, learned, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(merged, base, atol=0.1)


def test_peft_loads_the_adapters_of_a_checkpoint_onto_the_model_that_training_began_with(tmp_path: Path) -> None:
    start = tiny_folder(tmp_path / "start")
    trainer = LocalTrainer(
        add_adapters(load_policy(start), rank=4),
        build_objective({"preset": "grpo"}, max_response_tokens=9),
        settings=TrainSection(updates_per_step=2),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-2),
        export_dtype=torch.bfloat16,
    )
    train(trainer, 1, 2)
    path = checkpoint.save(tmp_path, step=2, trainer=trainer, state={}, keep=5)
    tokens = torch.tensor(some_sequences(20))
    with torch.no_grad():
        loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(start), str(path / "adapter"))(tokens)
        learned = trainer.policy.model(tokens).logits
        next_start = load_policy(path)
        use_exact_weights(next_start, path)
        exact = next_start.model(tokens).logits
        rounded = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)(tokens).logits
    assert torch.allclose(loaded.logits, learned, rtol=1e-4, atol=1e-4)
    assert torch.allclose(exact, learned, rtol=1e-3, atol=1e-3)
    assert (rounded - learned).abs().max() > 5 * (exact - learned).abs().max()


def test_adapters_of_another_rank_are_refused(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, step=1, trainer=trainer_of(), state={}, keep=5)
    with pytest.raises(CheckpointError, match="another model"):
        checkpoint.restore(path, trainer=trainer_of(rank=2))


def test_a_checkpoint_without_adapters_is_refused(tmp_path: Path) -> None:
    whole = LocalTrainer(
        tiny_policy(),
        build_objective({"preset": "grpo"}, max_response_tokens=9),
        settings=TrainSection(),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-2),
    )
    path = checkpoint.save(tmp_path, step=1, trainer=whole, state={}, keep=5)
    with pytest.raises(CheckpointError, match="is not a complete checkpoint"):
        checkpoint.restore(path, trainer=trainer_of())
