from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from batches import CPU, objective_of
from torch import Tensor

from ansatz.objectives.objective import Objective
from ansatz.train.batch import build_batch
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample


def mixed_versions() -> TrainSample:
    """Two tokens that version 3 sampled, a forced token, and one that version 4 sampled."""
    return TrainSample(
        prompt_ids=[1],
        token_ids=[5, 6, 7, 8],
        behavior_logps=[-1.0, -2.0, 0.0, -3.0],
        sampled_mask=[True, True, False, True],
        versions=[3, 3, 3, 4],
        group=0,
        reward=1.0,
    )


POLICY_LOGPS = torch.tensor([0.0, -1.5, -1.8, 0.0, -2.9])  # one for each token, the prompt's first


def log_ratios(objective: Objective, *, policy_version: int, new_T: Tensor = POLICY_LOGPS) -> tuple[list[float], float]:
    """log(policy / old) at the sampled tokens, and the mean ratio that the loss reports."""
    packed = pack_rollouts([mixed_versions()], device=CPU)
    batch = build_batch(packed, objective, policy_version=policy_version).with_old_logps(POLICY_LOGPS)
    losses = objective.loss(batch, new_T, None)
    gaps_T = (new_T - batch.old_logp_T)[batch.mask_T]
    return gaps_T.tolist(), float(losses.sums["ratio"] / losses.sums["tokens"])


def test_the_ratio_of_a_stale_token_is_that_to_the_policy_that_sampled_it() -> None:
    # Version 4 is updated: the first two tokens are stale, log(policy / behavior) = -1.5 + 1 and -1.8 + 2.
    gaps, mean_ratio = log_ratios(objective_of("grpo", entropy_coef=0.0), policy_version=4)
    assert gaps == pytest.approx([-0.5, 0.2, 0.0])
    assert mean_ratio == pytest.approx((math.exp(-0.5) + math.exp(0.2) + 1) / 3)


def test_without_stale_tokens_the_policy_is_its_own_old_policy_bit_for_bit() -> None:
    for version in (0, 3):
        assert log_ratios(objective_of("grpo", entropy_coef=0.0), policy_version=version) == ([0.0, 0.0, 0.0], 1.0)


def test_a_token_that_gets_older_in_the_second_update_keeps_its_log_prob_and_the_others_theirs() -> None:
    moved_T = POLICY_LOGPS + torch.tensor([0.0, 0.1, 0.1, 0.0, 0.1])
    gaps, _ = log_ratios(objective_of("grpo", entropy_coef=0.0), policy_version=4, new_T=moved_T)
    assert gaps == pytest.approx([-0.4, 0.3, 0.1])


def test_a_correction_for_the_sampler_carries_the_staleness_in_place_of_the_ratio() -> None:
    correction = {"name": "truncate", "high": None}
    objective = objective_of("reinforce", entropy_coef=0.0, weights="token_sum", correction=correction)
    packed = pack_rollouts([mixed_versions()], device=CPU)
    batch = build_batch(packed, objective, policy_version=4).with_old_logps(POLICY_LOGPS)
    assert (POLICY_LOGPS - batch.old_logp_T)[batch.mask_T].tolist() == [0.0, 0.0, 0.0]
    logp_T = POLICY_LOGPS.clone().requires_grad_()
    objective.loss(batch, logp_T, None).loss.backward()
    assert logp_T.grad is not None  # -(old / behavior) x reward, with the reward 1
    weights = (-logp_T.grad[batch.mask_T]).tolist()
    assert weights == pytest.approx([math.exp(-0.5), math.exp(0.2), math.exp(0.1)])


def test_forced_tokens_and_tokens_without_a_version_are_never_stale() -> None:
    unversioned = dataclasses.replace(mixed_versions(), versions=())
    packed = pack_rollouts([mixed_versions(), unversioned], device=CPU)
    stale_T = build_batch(packed, objective_of("grpo"), policy_version=9).stale_T
    sampled_by = packed.version_T[stale_T].tolist()
    assert sampled_by == [3, 3, 4]
    assert not stale_T[~packed.sampled_mask_T].any()
