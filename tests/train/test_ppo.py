"""PPO beyond its loss: the controller of the KL, a critic from another model, and a critic that trains alone."""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import tiny_policy

from ansatz.config.schema import CriticSection, TrainSection
from ansatz.errors import AlignmentError, ConfigError
from ansatz.objectives.build import build_objective
from ansatz.train import checkpoint
from ansatz.train.local import LocalTrainer
from ansatz.train.logps import logps_of
from ansatz.train.optim import Schedule
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample

PPO = {"preset": "ppo", "kl_coef": 0.1, "kl": {"name": "k1", "at_least": None}}
CONTROL = {"kl_control": {"name": "adaptive", "target": 0.5, "horizon": 100}}


def trainer_of(algorithm: dict[str, Any], *, schedule: Schedule | None = None, **settings: Any) -> LocalTrainer:
    return LocalTrainer(
        tiny_policy(),
        build_objective(algorithm, max_response_tokens=8),
        settings=TrainSection(**settings),
        dtype=torch.float32,
        schedule=schedule or Schedule(lr=1e-2),
    )


def rows(trainer: LocalTrainer) -> list[TrainSample]:
    """Two prompts of two responses as the policy would have sampled them, with rewards 1 and 0."""
    samples = [
        TrainSample(
            prompt_ids=(5, 6 + index // 2, 7),
            token_ids=tuple(3 + index + place for place in range(2 + index)),
            behavior_logps=[0.0] * (2 + index),
            group=index // 2,
            reward=float(index % 2),
        )
        for index in range(4)
    ]
    packed = pack_rollouts(samples, device=torch.device("cpu"))
    logp_T = logps_of(trainer.policy, packed, tokens_per_microbatch=1000)
    logps = {int(mask_T.sum()): logp_T[mask_T].tolist() for mask_T in _responses(packed)}
    return [dataclasses.replace(sample, behavior_logps=logps[len(sample.token_ids)]) for sample in samples]


def _responses(packed: Any) -> list[torch.Tensor]:
    return [(packed.segment_T == index) & packed.sampled_mask_T for index in range(packed.num_rollouts)]


def drift(trainer: LocalTrainer, step: int = 1) -> float:
    """Change the policy's head, so that it differs from the reference. Returns the KL of a response by hand: the
    estimate log(policy / reference), summed over tokens."""
    with torch.no_grad():
        trainer.policy.head.weight.add_(
            0.05 * torch.randn(trainer.policy.head.weight.shape, generator=_generator(step))
        )
    packed = pack_rollouts(rows(trainer), device=torch.device("cpu"))
    policy_T = logps_of(trainer.policy, packed, tokens_per_microbatch=1000)
    assert trainer.reference is not None
    reference_T = logps_of(trainer.reference, packed, tokens_per_microbatch=1000)
    return float((policy_T - reference_T)[packed.sampled_mask_T].sum()) / packed.num_rollouts


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def weights(trainer: LocalTrainer) -> torch.Tensor:
    return torch.cat([value.flatten() for value in trainer.optimizer.weights().values()]).clone()


@pytest.mark.parametrize("kl_in", ["reward", "loss"])
def test_the_controller_moves_the_coefficient_by_the_kl_of_a_response(kl_in: str) -> None:
    trainer = trainer_of({**PPO, **CONTROL, "kl_in": kl_in})
    kl = drift(trainer)
    error = min(max(kl / 0.5 - 1, -0.2), 0.2)
    report = trainer.update(trainer.batch(rows(trainer)), step=1)
    assert report.metrics["train/kl_coef"] == 0.1
    assert report.metrics["train/kl_ref"] == pytest.approx(kl * 4 / (2 + 3 + 4 + 5), rel=1e-4)
    assert trainer.kl_coef == pytest.approx(0.1 * (1 + error * 4 / 100), rel=1e-9)
    adapted = trainer.kl_coef
    assert trainer.update(trainer.batch(rows(trainer)), step=2).metrics["train/kl_coef"] == adapted


def test_the_penalty_in_the_reward_is_reported_and_grows_with_the_coefficient() -> None:
    trainer = trainer_of(PPO)
    kl = drift(trainer)
    report = trainer.update(trainer.batch(rows(trainer)), step=1)
    assert report.metrics["train/kl_penalty"] == pytest.approx(0.1 * kl, rel=1e-4)
    assert "train/kl_coef" not in report.metrics


def test_the_adapted_coefficient_acts_on_the_rewards_of_the_next_step() -> None:
    trainer = trainer_of({**PPO, **CONTROL, "whiten": "none", "advantage": {"name": "gae", "lam": 1.0}})
    drift(trainer)
    fixed = trainer.batch(rows(trainer))
    trainer.kl_coef = 0.2
    adapted = trainer.batch(rows(trainer))
    assert fixed.kl_T is not None
    assert fixed.return_T is not None
    assert adapted.return_T is not None
    # With gamma = lambda = 1 the return of a response's first token is its reward minus coefficient x KL of all tokens.
    first = [int(mask_T.nonzero()[0]) for mask_T in _responses(fixed.packed)]
    kl_N = [float(fixed.kl_T[mask_T].sum()) for mask_T in _responses(fixed.packed)]
    for index, kl in zip(first, kl_N, strict=True):
        assert float(fixed.return_T[index] - adapted.return_T[index]) == pytest.approx(0.1 * kl, abs=1e-6)


def test_a_restored_trainer_continues_with_the_adapted_coefficient(tmp_path: Path) -> None:
    trainer, other = (trainer_of({**PPO, **CONTROL}) for _ in range(2))
    drift(trainer)
    trainer.update(trainer.batch(rows(trainer)), step=1)
    path = checkpoint.save(tmp_path, step=1, trainer=trainer, state={}, keep=1)
    checkpoint.restore(path, trainer=other)
    assert trainer.kl_coef != 0.1
    assert other.kl_coef == trainer.kl_coef
    for each in (trainer, other):
        each.update(each.batch(rows(each)), step=2)
    assert other.state() == trainer.state()
    assert torch.equal(weights(other), weights(trainer))


def test_while_the_critic_trains_alone_the_policy_keeps_its_weights_and_its_version() -> None:
    trainer = trainer_of({"preset": "ppo"}, critic=CriticSection(lr=1e-2, steps_alone=2))
    start, changes = weights(trainer), trainer.changes
    losses = []
    for step in (1, 2):
        report = trainer.update(trainer.batch(rows(trainer)), step=step, check_alignment=True)
        losses.append(report.metrics["train/value_loss"])
        assert report.num_updates == trainer.version == 0
        assert report.metrics["align/mean_exp_gap"] == pytest.approx(1.0, abs=1e-5)
        assert "train/loss" not in report.metrics
    assert losses[1] < losses[0]
    assert (
        trainer.changes == changes + 2
    )  # without this, a signal could save a critic of one step with state of another
    assert torch.equal(weights(trainer), start)
    trainer.update(trainer.batch(rows(trainer)), step=3)
    assert trainer.version == 1
    assert not torch.equal(weights(trainer), start)


def test_the_warm_up_of_the_policy_begins_when_the_critic_no_longer_trains_alone() -> None:
    """Three steps of warm-up are quarters of the rate of 1e-2. Without the wait, step 3 would have three of them."""
    schedule = Schedule(lr=1e-2, warmup_steps=3)
    trainer = trainer_of({"preset": "ppo"}, schedule=schedule, critic=CriticSection(lr=1e-2, steps_alone=2))
    rates = [trainer.update(trainer.batch(rows(trainer)), step=step).metrics.get("train/lr") for step in range(1, 8)]
    assert rates[:2] == [None, None]
    assert rates[2:] == pytest.approx([0.25e-2, 0.5e-2, 0.75e-2, 1e-2, 1e-2])


def test_a_sampler_that_is_off_is_refused_while_the_critic_trains_alone() -> None:
    trainer = trainer_of({"preset": "ppo"}, critic=CriticSection(steps_alone=2))
    samples = rows(trainer)
    off = [dataclasses.replace(each, behavior_logps=[logp - 0.1 for logp in each.behavior_logps]) for each in samples]
    with pytest.raises(AlignmentError, match=rf"step 1: .* is {math.exp(0.1):.4f}"):
        trainer.update(trainer.batch(off), step=1, check_alignment=True)
    assert trainer.changes == 0


def test_a_critic_can_start_from_another_model() -> None:
    trainer = trainer_of({"preset": "ppo"})
    other = tiny_policy()
    with torch.no_grad():
        other.head.weight.add_(1.0)
        for parameter in other.model.model.layers.parameters():
            parameter.mul_(1.5)
    trainer.start_critic_from(other)
    assert trainer.critic is not None
    critic = trainer.critic.module.transformer
    expected = dict(other.model.named_parameters())
    assert all(torch.equal(value, expected[name]) for name, value in critic.named_parameters())
    batch = trainer.batch(rows(trainer))
    assert batch.old_value_T is not None
    assert not batch.old_value_T.any()  # the value head starts at 0
    report = trainer.update(batch, step=1)
    assert report.metrics["train/value_loss"] > 0


def test_a_critic_with_other_tokens_is_refused() -> None:
    trainer, other = trainer_of({"preset": "ppo"}), tiny_policy()
    other = dataclasses.replace(other, tokenizer=copy.deepcopy(other.tokenizer))
    other.tokenizer.add_tokens(["<another>"])
    with pytest.raises(ConfigError, match="its tokens are not those of the policy"):
        trainer.start_critic_from(other)
