from __future__ import annotations

import dataclasses
import math
import random

import pytest
import torch
from batches import CPU, before_update, by_token, objective_of, some_samples, whole_batch
from preset_lists import WITHOUT_TEACHER as PRESETS

from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.train.batch import TrainBatch, build_batch
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample

FAR = 31.0  # what stands outside the mask where nothing may look


def loss_and_gradient(batch: TrainBatch, objective: Objective, max_tokens: int) -> tuple[float, dict[int, float]]:
    """The loss summed over microbatches, and its gradient in each response token's log-prob, by token id."""
    loss, gradient = 0.0, dict[int, float]()
    for part in batch.microbatches(max_tokens)[0]:
        logp_T = by_token(part, salt=5).requires_grad_()
        entropy_T = by_token(part, salt=6).abs()
        parts = objective.loss(part.for_loss(logp_T), logp_T, entropy_T)
        parts.loss.backward()
        loss += parts.loss.item()
        mask_T = part.mask_T
        gradient |= dict(zip(part.packed.token_T[mask_T].tolist(), logp_T.grad[mask_T].tolist(), strict=True))
    return loss, gradient


SPLITTABLE = [name for name in PRESETS if not objective_of(name).whole_minibatch]


@pytest.mark.parametrize("preset", SPLITTABLE)
def test_microbatches_add_up_whatever_their_size_the_order_of_rollouts_and_the_names_of_groups(
    preset: str,
) -> None:
    objective, samples = objective_of(preset), some_samples(size=6)
    loss, gradient = loss_and_gradient(whole_batch(samples, objective), objective, 10**6)
    assert any(gradient.values())
    turned = random.Random(1).sample(samples, len(samples))
    renamed = [dataclasses.replace(sample, group=(sample.group * 7 + 3) % 11) for sample in turned]
    for given, max_tokens in [(samples, 1), (samples, 40), (turned, 25), (turned, 10**6), (renamed, 60)]:
        if preset == "remax" and given is renamed:
            continue  # its baselines are looked up by the group's name
        other_loss, other_gradient = loss_and_gradient(whole_batch(given, objective), objective, max_tokens)
        assert other_loss == pytest.approx(loss, abs=2e-6)
        assert other_gradient == pytest.approx(gradient, abs=1e-6)


def test_a_rollouts_mismatch_weight_in_training_includes_tokens_that_a_mask_rejects() -> None:
    # log(old / behavior) = 0.5, -0.1 and 0.2: k2 = 0.125 rejects the first token; the product is exp(0.6).
    gaps = torch.tensor([0.5, -0.1, 0.2])
    sample = TrainSample(prompt_ids=[1], token_ids=[5, 6, 7], behavior_logps=(-1 - gaps).tolist(), group=0, reward=1.0)
    objective = build_objective(
        {
            "preset": "reinforce",
            "weights": "token_sum",
            "masks": {"name": "rejection", "estimator": "k2", "high": 0.1},
            "correction": {"name": "truncate", "level": "sequence", "high": None},
        }
    )
    batch = build_batch(pack_rollouts([sample], device=CPU), objective, old_logp_T=torch.tensor([0.0, -1, -1, -1]))
    assert batch.mask_T.tolist() == [False, False, True, True]
    logp_T = torch.tensor([0.0, -1, -1, -1], requires_grad=True)
    objective.loss(batch.for_loss(logp_T), logp_T, None).loss.backward()
    assert logp_T.grad is not None
    assert (-logp_T.grad).tolist() == pytest.approx([0, 0, math.exp(0.6), math.exp(0.6)])


@pytest.mark.parametrize("weights", ["token_mean", "token_sum", "sequence_mean", "sequence_sum", "prompt_mean"])
def test_every_kind_of_weight_adds_up_also_with_masks_and_penalties_of_their_own(weights: str) -> None:
    objective = objective_of("grpo", weights=weights, penalty_weights="token_mean", masks="not_truncated", kl_coef=0.1)
    batch = whole_batch(some_samples(), objective)
    assert batch.num_loss_tokens < pack_rollouts(some_samples(), device=CPU).sampled_mask_T.sum()
    loss, gradient = loss_and_gradient(batch, objective, 10**6)
    for max_tokens in (1, 30, 50):
        other_loss, other_gradient = loss_and_gradient(batch, objective, max_tokens)
        assert other_loss == pytest.approx(loss, rel=1e-5)
        assert other_gradient == pytest.approx(gradient, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("preset", PRESETS)
def test_values_outside_the_mask_do_not_matter(preset: str) -> None:
    objective = objective_of(preset, kl_coef=0.1)
    batch = whole_batch(some_samples(), objective)
    outside_T = ~batch.mask_T
    names = ["old_logp_T", "ref_logp_T", "advantage_T", "weight_T"]
    noisy = dataclasses.replace(
        batch,
        packed=dataclasses.replace(batch.packed, behavior_logp_T=batch.behavior_logp_T + FAR * outside_T),
        **{name: getattr(batch, name) + FAR * outside_T for name in names},
    )
    assert loss_and_gradient(noisy, objective, 10**6) == loss_and_gradient(batch, objective, 10**6)


@pytest.mark.parametrize("preset", PRESETS)
def test_without_old_log_probs_the_policy_is_its_own_old_policy(preset: str) -> None:
    """The same numbers as with the policy's values given."""
    objective = objective_of(preset)
    batch = whole_batch(some_samples(), objective)
    given = dataclasses.replace(batch, old_logp_T=by_token(batch, salt=5))
    left_out = before_update(batch)
    for max_tokens in (10**6, 40):
        assert loss_and_gradient(left_out, objective, max_tokens) == loss_and_gradient(given, objective, max_tokens)
    assert left_out.for_loss(by_token(batch, salt=5).requires_grad_()).old_logp_T.requires_grad is False


@pytest.mark.parametrize("preset", PRESETS)
def test_forced_tokens_have_neither_weight_nor_advantage_nor_gradient(preset: str) -> None:
    samples = [
        dataclasses.replace(sample, sampled_mask=[True, *[False] * (len(sample.token_ids) - 1)])
        for sample in some_samples(size=4)
    ]
    objective = objective_of(preset, kl_coef=0.1)
    batch = whole_batch(samples, objective)
    assert not batch.weight_T[~batch.packed.sampled_mask_T].any()
    assert not batch.advantage_T[~batch.packed.sampled_mask_T].any()
    _, gradient = loss_and_gradient(batch, objective, 10**6)
    assert set(gradient) <= {sample.token_ids[0] for sample in samples}


def test_selected_rollouts_keep_their_numbers_and_are_renumbered_from_0() -> None:
    batch = whole_batch(some_samples(), objective_of("grpo"))
    part = batch.select_rollouts(torch.tensor([2, 5, 6]))
    assert part.num_rollouts == 12
    assert part.segment_T.unique().tolist() == [0, 1, 2]
    for mine, theirs in enumerate([2, 5, 6]):
        mine_T, theirs_T = part.segment_T == mine, batch.segment_T == theirs
        for name in ("old_logp_T", "ref_logp_T", "advantage_T", "weight_T", "behavior_logp_T", "mask_T"):
            assert torch.equal(getattr(part, name)[mine_T], getattr(batch, name)[theirs_T])
        assert torch.equal(part.packed.token_T[mine_T], batch.packed.token_T[theirs_T])
    assert torch.equal(part.packed.reward_N, batch.packed.reward_N[[2, 5, 6]])
    assert torch.equal(part.packed.group_N, batch.packed.group_N[[2, 5, 6]])
    assert part.penalty_weight_T is None


@pytest.mark.parametrize("preset", ["grpo", "dapo", "dr_grpo", "luspo"])
def test_minibatches_hold_whole_groups_weighted_as_batches_of_their_own_with_advantages_of_the_step(
    preset: str,
) -> None:
    objective, samples = objective_of(preset), some_samples(groups=5)
    batch = whole_batch(samples, objective)
    parts = batch.minibatches(2, objective)
    groups = [set(part.packed.group_N.tolist()) for part in parts]
    assert sorted(len(each) for each in groups) == [2, 3]
    assert set.union(*groups) == set(range(5))
    for part, own in zip(parts, groups, strict=True):
        alone = whole_batch([sample for sample in samples if sample.group in own], objective)
        assert part.num_rollouts == alone.num_rollouts == 3 * len(own)
        torch.testing.assert_close(part.weight_T, alone.weight_T)
        torch.testing.assert_close(part.advantage_T, alone.advantage_T)  # z-scored within groups, so equal
        assert torch.equal(part.packed.token_T, alone.packed.token_T)


def test_one_minibatch_is_the_batch_and_there_are_never_more_minibatches_than_groups() -> None:
    objective = objective_of("grpo")
    batch = whole_batch(some_samples(), objective)
    assert batch.minibatches(1, objective)[0] is batch
    assert [part.num_rollouts for part in batch.minibatches(9, objective)] == [3, 3, 3, 3]
