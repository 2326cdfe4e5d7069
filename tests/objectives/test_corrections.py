"""Corrections and masks, by hand on two rollouts of two tokens."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ansatz.objectives.build import build_objective
from ansatz.objectives.components import Component

SEGMENT_T = torch.tensor([0, 0, 1, 1])
OLD_T = torch.tensor([-1.0, -1.0, -1.0, -1.0], dtype=torch.float64)
WEIGHTS = [2.0, 0.6, 1.1, 1.0]  # old / behavior
BEHAVIOR_T = OLD_T - torch.tensor(WEIGHTS, dtype=torch.float64).log()


def correction(name: str, **settings: Any) -> Component:
    return build_objective({"correction": {"name": name, **settings}}).correction[0]


def factors(component: Component, **changes: torch.Tensor) -> list[float]:
    base = {"segment_T": SEGMENT_T, "old_logp_T": OLD_T, "behavior_logp_T": BEHAVIOR_T}
    return component({**base, **changes}).tolist()


def test_truncation_clips_token_and_sequence_weights():
    assert factors(correction("truncate", high=1.5, low=0.8)) == pytest.approx([1.5, 0.8, 1.1, 1.0])
    assert factors(correction("truncate", level="sequence", high=1.15)) == pytest.approx([1.15, 1.15, 1.1, 1.1])
    assert factors(correction("truncate", level="mean", high=None)) == pytest.approx(
        [math.sqrt(1.2)] * 2 + [math.sqrt(1.1)] * 2
    )
    assert factors(correction("truncate", high=None)) == pytest.approx(WEIGHTS)


def test_self_normalised_weights_average_to_one_token_or_rollout():
    tokens = correction("truncate", high=None, self_normalize=True)
    assert sum(factors(tokens)) / 4 == pytest.approx(1.0)
    rollouts = factors(correction("truncate", level="sequence", high=None, self_normalize=True))
    assert (rollouts[0] + rollouts[2]) / 2 == pytest.approx(1.0)
    assert build_objective({"correction": {"name": "truncate", "self_normalize": True}}).whole_minibatch


def test_mask_outside_zeroes_and_keeps_the_weight_inside_and_drop_outside_only_filters():
    assert factors(correction("mask_outside", low=0.9, high=1.5)) == pytest.approx([0.0, 0.0, 1.1, 1.0])
    assert factors(correction("drop_outside", level="token", low=0.9, high=1.5)) == [0.0, 0.0, 1.0, 1.0]
    assert factors(correction("drop_outside", level="mean", low=0.9, high=1.05)) == [0.0, 0.0, 1.0, 1.0]
    assert factors(correction("drop_outside", level="sequence", low=None, high=1.15)) == [0.0, 0.0, 1.0, 1.0]
    assert factors(correction("drop_outside", level="any", low=0.7, high=None)) == [0.0, 0.0, 1.0, 1.0]


def test_stale_negatives_drops_bad_rollouts_that_the_policy_left():
    policy_T = OLD_T - torch.tensor([0.5, 0.0, 0.5, 0.0], dtype=torch.float64)
    changes = {"policy_logp_T": policy_T, "advantage_T": torch.tensor([-1.0, -1.0, 1.0, 1.0])}
    assert factors(correction("stale_negatives", threshold=0.2), **changes) == [0.0, 0.0, 1.0, 1.0]
    assert factors(correction("stale_negatives", threshold=0.3), **changes) == [1.0] * 4
    # the sampler's log-probs are below the policy's mean here, so nothing is stale to them
    shifted = {**changes, "policy_logp_T": BEHAVIOR_T}
    assert factors(correction("stale_negatives", threshold=0.0, sampler="behavior"), **shifted) == [1.0] * 4


def test_only_the_highest_entropies_learn_and_the_quantile_interpolates():
    entropy_T = torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64)
    assert factors(correction("high_entropy", share=0.5), entropy_T=entropy_T) == [0.0, 1.0, 0.0, 1.0]
    assert factors(correction("high_entropy", share=1.0), entropy_T=entropy_T) == [1.0] * 4
    result = correction("high_entropy", share=0.4)({"entropy_T": torch.arange(11.0)})
    assert result.tolist() == [0.0] * 6 + [1.0] * 5  # the 0.6 quantile of 0..10 is 6


def test_trust_region_stops_moves_that_the_advantage_asks_for_and_no_others():
    anchor_T = torch.tensor([0.5, 0.5, 0.5, 0.5], dtype=torch.float64).log()
    policy_T = torch.tensor([0.8, 0.8, 0.2, 0.2], dtype=torch.float64).log()
    changes = {
        "policy_logp_T": policy_T,
        "anchor_logp_T": anchor_T,
        "advantage_T": torch.tensor([1.0, -1.0, 1.0, -1.0]),
    }
    assert factors(correction("trust_region"), **changes) == [0.0, 1.0, 1.0, 0.0]
    assert factors(correction("trust_region", sided=False), **changes) == [0.0] * 4
    assert factors(correction("trust_region", low=0.4, high=0.2), **changes) == [0.0, 1.0, 1.0, 1.0]
    # KL(0.5 || 0.8) over a coin: 0.5 ln(0.5/0.8) + 0.5 ln(0.5/0.2) = 0.2231
    kl = {"divergence": "kl", "low": 1.0}
    assert factors(correction("trust_region", high=0.22, **kl), **changes)[0] == 0.0
    assert factors(correction("trust_region", high=0.23, **kl), **changes)[0] == 1.0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # Rollout 0 has weights 2.0 and 0.6, of which the second token is rejected; rollout 1 has 1.1 and 1.0.
        ({"name": "truncate", "level": "sequence", "high": None}, [1.2, 0.0, 1.1, 1.1]),
        ({"name": "truncate", "level": "mean", "high": None}, [1.2**0.5, 0.0, 1.1**0.5, 1.1**0.5]),
        ({"name": "truncate", "high": None, "self_normalize": True}, [2.0 / 1.175, 0.0, 1.1 / 1.175, 1.0 / 1.175]),
        ({"name": "drop_outside", "level": "any", "low": 0.7, "high": None}, [0.0, 0.0, 1.0, 1.0]),
        ({"name": "mask_outside", "level": "sequence", "low": 0.5, "high": 1.15}, [0.0, 0.0, 1.1, 1.1]),
    ],
)
def test_mismatch_weights_in_the_loss_count_tokens_that_a_mask_rejects(settings: dict[str, Any], expected: list[float]):
    objective = build_objective({"surrogate": "log_prob", "correction": settings, "weights": "token_sum"})
    mask_T = torch.tensor([True, False, True, True])
    step = SimpleNamespace(
        segment_T=SEGMENT_T,
        sampled_mask_T=torch.ones(4).bool(),
        mask_T=mask_T,
        old_logp_T=OLD_T,
        behavior_logp_T=BEHAVIOR_T,
        ref_logp_T=None,
        advantage_T=torch.ones(4, dtype=torch.float64) * mask_T,
        weight_T=torch.ones(4, dtype=torch.float64) * mask_T,
        penalty_weight_T=None,
        likelihood_weight_T=None,
    )
    policy_T = OLD_T.clone().requires_grad_()
    parts = objective.loss(step, policy_T)
    (gradient_T,) = torch.autograd.grad(parts.loss, policy_T)
    assert (-gradient_T).tolist() == pytest.approx(expected)
    assert (parts.mismatch_weight_T * mask_T).tolist() == pytest.approx(expected)


def test_corrections_of_both_kinds_multiply_the_loss():
    """w = 2.0, 0.6, 1.1, 1.0; of the entropies 1, 2, 3, 4 the upper half learns."""
    objective = build_objective(
        {
            "surrogate": "log_prob",
            "correction": [{"name": "truncate", "high": None}, {"name": "high_entropy", "share": 0.5}],
        }
    )
    ones_T = torch.ones(4, dtype=torch.float64)
    step = SimpleNamespace(
        segment_T=SEGMENT_T,
        sampled_mask_T=ones_T.bool(),
        mask_T=ones_T.bool(),
        old_logp_T=OLD_T,
        behavior_logp_T=BEHAVIOR_T,
        ref_logp_T=None,
        advantage_T=ones_T,
        weight_T=ones_T,
        penalty_weight_T=None,
        likelihood_weight_T=None,
    )
    policy_T = OLD_T.clone().requires_grad_()
    entropy_T = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    (gradient_T,) = torch.autograd.grad(objective.loss(step, policy_T, entropy_T).loss, policy_T)
    assert (-gradient_T).tolist() == pytest.approx([0.0, 0.0, 1.1, 1.0])


def test_corrections_multiply_and_leave_denominators_alone():
    objective = build_objective({"correction": ["truncate", {"name": "drop_outside", "level": "token", "low": 0.9}]})
    assert [component.name for component in objective.correction] == ["truncate", "drop_outside"]
    weight_T = objective.token_weights(SEGMENT_T, torch.ones(4).bool(), num_rollouts=2)
    assert weight_T.tolist() == [0.25] * 4


def test_masks_leave_the_denominators_too():
    objective = build_objective({"masks": "not_truncated", "weights": "token_mean"})
    mask_T = torch.tensor([True, True, False, True])
    kept_T = objective.loss_mask(SEGMENT_T, mask_T, truncated_N=torch.tensor([True, False]))
    assert kept_T.tolist() == [False, False, False, True]
    assert objective.token_weights(SEGMENT_T, kept_T, num_rollouts=2).tolist() == [0, 0, 0, 1]
    assert torch.equal(build_objective({}).loss_mask(SEGMENT_T, mask_T), mask_T)


@pytest.mark.parametrize(
    ("level", "estimator", "high", "kept"),
    [
        ("token", "k2", 0.15, [False, True, True, True]),  # ln(2)^2/2 = 0.24, ln(.6)^2/2 = 0.13
        ("sum", "k2", 0.3, [False, False, True, True]),
        ("mean", "k3", 0.15, [False, False, True, True]),  # k3: 2-1-ln2 = 0.307, 0.6-1-ln.6 = 0.111
        ("max", "k3", 0.4, [True, True, True, True]),
        ("token", "k1", 0.0, [True, False, True, True]),  # log(behavior/old) is positive for the second alone
    ],
)
def test_rejection_bounds_the_statistic_it_names(level: str, estimator: str, high: float, kept: list[bool]):
    component = {"name": "rejection", "level": level, "estimator": estimator, "high": high}
    objective = build_objective({"masks": component})
    result = objective.loss_mask(SEGMENT_T, torch.ones(4).bool(), old_logp_T=OLD_T, behavior_logp_T=BEHAVIOR_T)
    assert result.tolist() == kept


def test_total_variation_drops_only_tokens_that_would_increase_it():
    """|w - 1| = 1, 0.4 (mean 0.7) and 0.1, 0 (mean 0.05); log w is positive, negative, positive, zero."""
    good_T, bad_T = torch.ones(4), -torch.ones(4)
    assert factors(correction("total_variation", high=0.6), advantage_T=good_T) == [0.0, 1.0, 1.0, 1.0]
    assert factors(correction("total_variation", high=0.6), advantage_T=bad_T) == [1.0, 0.0, 1.0, 1.0]
    assert factors(correction("total_variation", high=0.8), advantage_T=good_T) == [1.0] * 4
    assert factors(correction("total_variation", low=0.1, high=None), advantage_T=good_T) == [1.0, 1.0, 0.0, 1.0]


def test_weights_zeroed_outside_can_be_normalised_over_tokens_or_rollouts():
    tokens = correction("mask_outside", low=0.9, high=1.5, self_normalize=True)
    assert factors(tokens) == pytest.approx([0.0, 0.0, 1.1 / 0.525, 1.0 / 0.525])
    rollouts = correction("mask_outside", level="sequence", low=0.9, high=1.15, self_normalize=True)
    assert factors(rollouts) == pytest.approx([0.0, 0.0, 2.0, 2.0])
