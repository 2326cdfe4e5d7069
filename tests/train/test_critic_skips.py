"""An update that is not finite for the critic changes neither the critic nor the policy, and the run goes on."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_policy

from ansatz.audit.bundle import read_bundle
from ansatz.config.schema import CriticSection, TrainSection
from ansatz.errors import CheckpointError, NonFiniteError
from ansatz.objectives.build import build_objective
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.repeat import repeat_update
from ansatz.train.sample import TrainSample
from ansatz.train.skipped import StoredUpdate, write_skipped

PPO = {"preset": "ppo", "kl_coef": 0.0, "whiten": "none"}


def trainer_of(*, steps_alone: int = 0) -> LocalTrainer:
    return LocalTrainer(
        tiny_policy(),
        build_objective(PPO, max_response_tokens=8),
        settings=TrainSection(critic=CriticSection(lr=1e-2, steps_alone=steps_alone)),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-2),
    )


def rows(reward: float = 1.0) -> list[TrainSample]:
    """Two prompts of two responses, one of which has the reward."""
    return [
        TrainSample(
            prompt_ids=(5, 6 + index // 2),
            token_ids=(3 + index, 8, 9 + index),
            behavior_logps=[-3.0] * 3,
            group=index // 2,
            reward=reward * (index % 2),
        )
        for index in range(4)
    ]


def everything(trainer: LocalTrainer) -> dict[str, torch.Tensor]:
    """Every weight and moment of policy and critic."""
    assert trainer.critic is not None
    both = {"policy": trainer.optimizer, "critic": trainer.critic.optimizer}
    return {
        f"{name}/{key}": value.clone()
        for name, optimizer in both.items()
        for key, value in {**optimizer.weights(), **optimizer.state()}.items()
    }


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[key]) for key, value in first.items())


def break_critic(trainer: LocalTrainer):
    assert trainer.critic is not None
    return trainer.critic.module.value.weight.register_hook(lambda gradient: gradient * math.inf)


@pytest.mark.parametrize("steps_alone", [0, 9])
def test_a_critic_that_is_not_finite_skips_the_update_of_both(steps_alone: int) -> None:
    trainer, other = trainer_of(steps_alone=steps_alone), trainer_of(steps_alone=steps_alone)
    for each in (trainer, other):
        each.update(each.batch(rows()), step=1)
    before, skipped = everything(trainer), list[StoredUpdate]()
    trainer.on_skip = skipped.append
    hook = break_critic(trainer)
    changes, version = trainer.changes, trainer.version
    report = trainer.update(trainer.batch(rows()), step=2)
    hook.remove()
    assert report.metrics["train/skipped_steps"] == 1
    assert (report.num_updates, trainer.changes, trainer.version) == (0, changes, version)
    assert equal(everything(trainer), before)
    assert "critic" in skipped[0].cause
    for each in (trainer, other):  # nothing of the skipped update is left in the next
        each.update(each.batch(rows()), step=3)
    assert equal(everything(trainer), everything(other))


def test_a_policy_that_is_not_finite_leaves_no_gradient_in_the_critic() -> None:
    trainer, other = trainer_of(), trainer_of()
    hook = trainer.policy.head.weight.register_hook(lambda gradient: gradient * math.inf)
    before = everything(trainer)
    assert trainer.update(trainer.batch(rows()), step=1).metrics["train/skipped_steps"] == 1
    assert equal(everything(trainer), before)
    hook.remove()
    for each in (trainer, other):
        each.update(each.batch(rows()), step=2)
    assert equal(everything(trainer), everything(other))


def test_a_loss_of_the_critic_that_overflows_skips_the_update() -> None:
    """The square of 3e19 is above the largest float32, the gradient is not."""
    trainer = trainer_of(steps_alone=9)
    skipped = list[StoredUpdate]()
    trainer.on_skip = skipped.append
    before = everything(trainer)
    trainer.update(trainer.batch(rows(reward=3e19)), step=1)
    assert [update.cause.partition(";")[0] for update in skipped] == ["step 1: the critic: the loss is inf"]
    assert equal(everything(trainer), before)


def test_the_third_skipped_update_in_a_row_stops_the_run_whichever_of_the_two_was_not_finite() -> None:
    trainer = trainer_of()
    hook = break_critic(trainer)
    trainer.update(trainer.batch(rows()), step=1)
    hook.remove()
    trainer.policy.head.weight.register_hook(lambda gradient: gradient * math.inf)
    trainer.update(trainer.batch(rows()), step=2)
    with pytest.raises(NonFiniteError, match=r"^step 3: the gradient norm is .*number 3 in a row"):
        trainer.update(trainer.batch(rows()), step=3)


def test_a_skipped_update_of_a_critic_is_stored_but_cannot_be_repeated(tmp_path: Path) -> None:
    trainer, folder = trainer_of(), tmp_path / "skipped"
    trainer.on_skip = lambda skipped: write_skipped(folder, skipped)
    break_critic(trainer)
    trainer.update(trainer.batch(rows()), step=7)
    assert read_bundle(folder).notes["of"] == "critic"
    with pytest.raises(CheckpointError, match="the critic's update was not finite, and its weights are not stored"):
        repeat_update(folder, trainer.objective)


def test_a_minibatch_that_stops_early_leaves_no_gradient_in_the_critic() -> None:
    trainer, other = trainer_of(), trainer_of()
    objective = trainer.objective
    trainer.objective = dataclasses.replace(objective, max_ratio=1e-6)
    before = everything(trainer)
    assert trainer.update(trainer.batch(rows()), step=1).metrics["train/early_stops"] == 1
    assert equal(everything(trainer), before)
    trainer.objective = objective
    for each in (trainer, other):
        each.update(each.batch(rows()), step=2)
    assert equal(everything(trainer), everything(other))
