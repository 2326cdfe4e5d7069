"""`kl: full` in every combination that the pages allow, against distributions computed densely in float64."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from learning import rows
from tiny_models import tiny_policy
from torch import Tensor

from ansatz.config.schema import TrainSection
from ansatz.errors import ConfigError
from ansatz.models.load import Policy
from ansatz.models.logps import chunked_kl
from ansatz.models.lora import add_adapters
from ansatz.objectives.build import build_objective
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.sample import TrainSample

TEMPERATURE = 0.7


def trainer_of(*, adapters: bool = False, settings: dict[str, Any] | None = None, **algorithm: Any) -> LocalTrainer:
    policy = add_adapters(tiny_policy(), rank=4, seed=0) if adapters else tiny_policy()
    return LocalTrainer(
        policy,
        build_objective({"kl": "full", "kl_coef": 0.1, **algorithm}, max_response_tokens=9),
        settings=TrainSection(**(settings or {})),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-2),
        temperature=TEMPERATURE,
    )


def top_k(samples: list[TrainSample]) -> list[TrainSample]:
    return [dataclasses.replace(sample, num_candidates=[40] * len(sample.token_ids)) for sample in samples]


def partial(samples: list[TrainSample]) -> list[TrainSample]:
    """The first half of each response comes from an earlier policy, and its first token was forced."""
    return [
        dataclasses.replace(
            sample,
            versions=[-1 + (place >= len(sample.token_ids) // 2) for place in range(len(sample.token_ids))],
            sampled_mask=[place > 0 for place in range(len(sample.token_ids))],
        )
        for sample in samples
    ]


def dense_kl(policy: Policy, reference: Policy, sample: TrainSample, kl: str) -> Tensor:
    """KL at each response token: one forward pass of each model over the sequence without packing."""
    token_ids = torch.tensor([[*sample.prompt_ids, *sample.token_ids]])
    with torch.no_grad():
        policy_TV, reference_TV = (
            (model.model(input_ids=token_ids).logits[0].double() / TEMPERATURE).log_softmax(-1)
            for model in (policy, reference)
        )
    before = slice(len(sample.prompt_ids) - 1, -1)
    if kl == "full_reverse":
        return (reference_TV.exp() * (reference_TV - policy_TV)).sum(-1)[before]
    return (policy_TV.exp() * (policy_TV - reference_TV)).sum(-1)[before]


PLACES, KINDS = ("loss", "reward", "return", "advantage"), (list, top_k, partial)
EVERY_PAIR = {
    (kl_in, 1 + (i + j) % 2, bool((i // 2 + j) % 2), kind)
    for i, kl_in in enumerate(PLACES)
    for j, kind in enumerate(KINDS)
}
"""A quarter of all combinations, in which each two values meet. The others are slow tests."""


@pytest.mark.parametrize(
    ("kl_in", "epochs", "adapters", "kind"),
    [
        pytest.param(*each, marks=() if each in EVERY_PAIR else pytest.mark.slow)
        for each in itertools.product(PLACES, (1, 2), (False, True), KINDS)
    ],
)
def test_an_exact_kl_trains_in_every_combination(kl_in: str, epochs: int, adapters: bool, kind: Any):
    trainer = trainer_of(
        adapters=adapters, settings={"epochs_per_step": epochs, "updates_per_step": epochs}, kl_in=kl_in
    )
    for step in (1, 2):
        report = trainer.update(trainer.batch(kind(rows(step))), step=step)
        assert report.num_updates == epochs * epochs
        assert all(math.isfinite(value) for value in report.metrics.values())


@pytest.mark.parametrize(("kind", "kl"), [(list, "full"), (top_k, "full"), (list, "full_reverse")])
def test_an_exact_kl_in_the_reward_is_that_of_the_whole_vocabulary(kind: Any, kl: str):
    trainer = trainer_of(preset="reinforce", advantage="reward_to_go", kl_in="reward", kl=kl)
    assert trainer.reference is not None
    with torch.no_grad():
        for parameter in trainer.policy.model.parameters():
            parameter.add_(0.05 * torch.sin(torch.arange(parameter.numel()).view(parameter.shape).float()))
    samples = kind(rows(1))
    batch = trainer.batch(samples)
    by_response = {tuple(sample.token_ids): sample for sample in samples}
    for index in range(batch.num_rollouts):  # packing may reorder them
        sample = by_response[tuple(batch.packed.token_T[(batch.segment_T == index) & batch.mask_T].tolist())]
        kl_T = dense_kl(trainer.policy, trainer.reference, sample, kl)
        to_go_T = sample.reward - 0.1 * kl_T.flip(0).cumsum(0).flip(0)  # gamma 1, the reward at the last token
        got_T = batch.advantage_T[(batch.segment_T == index) & batch.mask_T]
        assert kl_T.min() > 1e-4
        torch.testing.assert_close(got_T.double(), to_go_T, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_the_kl_of_the_reference_is_policy_minus_reference():
    # d/dz_v of -sum_u q_u log softmax(z)_u is softmax(z)_v - q_v; the head is the identity, so z is the hidden state.
    hidden, reference = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5)
    divergence = build_objective({"kl": "full_reverse", "kl_coef": 1}).token_divergence
    assert divergence is not None
    kl_M = chunked_kl(hidden, torch.eye(5), reference, torch.eye(5), divergence=divergence)
    (got,) = torch.autograd.grad(kl_M.sum(), hidden)
    torch.testing.assert_close(got, hidden.softmax(-1) - reference.softmax(-1))


@pytest.mark.parametrize("kl_to", ["old", "behavior"])
def test_an_exact_kl_to_a_policy_that_is_not_kept_is_refused(kl_to: str):
    with pytest.raises(ConfigError, match=f"kl = 'full' with kl_to = '{kl_to}'.*only the reference"):
        build_objective({"kl": "full", "kl_coef": 0.1, "kl_to": kl_to})
    build_objective({"kl": "full", "kl_coef": 0.0, "kl_to": kl_to})  # no KL, nothing to refuse
