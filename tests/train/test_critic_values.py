"""What a critic learns, on a task whose values a table gives: random digits, and a reward for many ones among them."""

from __future__ import annotations

from math import comb

import torch
from tiny_models import tiny_folder, tiny_policy

from ansatz.config.schema import TrainSection
from ansatz.models.save import save_model
from ansatz.objectives.build import build_objective
from ansatz.reward_models.model import load_for_critic, load_reward_model
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.sample import TrainSample

LENGTH, NEEDED = 8, 5
ZERO, ONE = 5, 6
PPO = {"preset": "ppo", "kl_coef": 0.0, "advantage": {"name": "gae", "lam": 1.0}}


def true_value(num_left: int, num_ones: int) -> float:
    """The probability of at least NEEDED ones, when each of the digits that are left is one with probability 1/2."""
    return sum(comb(num_left, more) for more in range(num_left + 1) if num_ones + more >= NEEDED) / 2**num_left


def responses(count: int, *, seed: int) -> tuple[list[TrainSample], torch.Tensor]:
    """Responses of random digits, and the true value [count * LENGTH] before each of their tokens."""
    digits = torch.randint(0, 2, (count, LENGTH), generator=torch.Generator().manual_seed(seed)).tolist()
    samples = [
        TrainSample(
            prompt_ids=(3, 4),
            token_ids=tuple(ONE if digit else ZERO for digit in row),
            behavior_logps=[0.0] * LENGTH,
            group=index,
            reward=float(sum(row) >= NEEDED),
        )
        for index, row in enumerate(digits)
    ]
    values = [true_value(LENGTH - place, sum(row[:place])) for row in digits for place in range(LENGTH)]
    return samples, torch.tensor(values)


def explained(prediction: torch.Tensor, target: torch.Tensor) -> float:
    return float(1 - (target - prediction).var() / target.var())


def trainer() -> LocalTrainer:
    return LocalTrainer(
        tiny_policy(),
        build_objective(PPO, max_response_tokens=LENGTH),
        settings=TrainSection(),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-3),
    )


def train_critic(trainer: LocalTrainer, *, updates: int, lr: float) -> None:
    critic = trainer.critic
    assert critic is not None
    for update in range(updates):
        samples, _ = responses(128, seed=update)
        critic.accumulate_gradients(trainer.batch(samples), trainer.objective, step=1)
        critic.optimizer.step(lr=lr, max_grad_norm=1.0)


def test_a_critic_comes_close_to_the_table_of_true_values():
    trained = trainer()
    train_critic(trained, updates=80, lr=5e-3)
    samples, true_M = responses(512, seed=1000)
    batch = trained.batch(samples)
    assert batch.old_value_T is not None
    assert batch.return_T is not None
    value_M, return_M = (values_T[batch.packed.sampled_mask_T] for values_T in (batch.old_value_T, batch.return_T))
    assert explained(value_M, true_M) > 0.8
    assert explained(value_M, return_M) > 0.8 * explained(true_M, return_M)


def test_of_a_reward_model_with_extra_layers_only_these_learn_and_write_to_their_own_channels(tmp_path):
    trained = trainer()
    rewards = load_reward_model(tiny_folder(tmp_path / "model"), reads="step", extra_layers=2, extra_width=16)
    save_model(rewards, tmp_path / "rewards", state=dict(rewards.model.named_parameters()), dtype=torch.float32)
    model = load_for_critic(tmp_path / "rewards")
    trained.start_critic_from(model)
    critic = trained.critic
    assert critic is not None
    before = {name: value.clone() for name, value in critic.module.state_dict().items()}
    train_critic(trained, updates=3, lr=1e-2)
    changed = {name for name, value in critic.module.state_dict().items() if not value.equal(before[name])}
    trained_layers = model.model.config.num_hidden_layers - 2
    assert all(f"layers.{layer}." not in name for name in changed for layer in range(trained_layers))
    assert {"value.weight", "transformer.model.norm.weight"} <= changed
    after = critic.module.state_dict()
    assert model.written.keys() == rewards.written.keys() != set()
    assert not any(after[f"transformer.{name}"][~mask].any() for name, mask in model.written.items())
    assert not any("score" in name for name in after)
