"""How many tokens a component reports as clipped, counted by hand.

The definition: a token is clipped where the clipped branch is taken, so that its gradient through the ratio is cut. For
CISPO, whose ratio has no gradient, it is clipped where its weight is changed.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ansatz.objectives.build import build_objective

RATIOS = [0.5, 0.9, 1.1, 1.3, 3.5]
# Each ratio once with A = 1, once with A = -1, once with A = 0.
RATIO_T = torch.tensor(RATIOS * 3, dtype=torch.float64)
ADVANTAGE_T = torch.tensor([1.0] * 5 + [-1.0] * 5 + [0.0] * 5, dtype=torch.float64)


def counts(surrogate: Any, ratio_T: torch.Tensor = RATIO_T, advantage_T: torch.Tensor = ADVANTAGE_T, **spec: Any):
    """(clipped_low, clipped_high) of a microbatch whose rollouts have one token each; old log-prob -2."""
    old_T = torch.full_like(ratio_T, -2.0)
    ones_T = torch.ones_like(ratio_T)
    batch = SimpleNamespace(
        segment_T=torch.arange(len(ratio_T)),
        mask_T=ones_T.bool(),
        sampled_mask_T=ones_T.bool(),
        old_logp_T=old_T,
        behavior_logp_T=old_T,
        ref_logp_T=None,
        advantage_T=advantage_T,
        weight_T=ones_T,
        penalty_weight_T=None,
        likelihood_weight_T=None,
    )
    objective = build_objective({"surrogate": surrogate, **spec})
    sums = objective.loss(batch, (old_T + ratio_T.log()).requires_grad_()).sums
    return sums["clipped_low"].item(), sums["clipped_high"].item()


@pytest.mark.parametrize(
    ("surrogate", "expected"),
    [
        # Of A = 1 the ratios above 1.2 are clipped (1.3, 3.5); of A = -1 the ratio below 0.8 (0.5).
        ({"name": "clip"}, (1, 2)),
        ({"name": "clip", "high": 0.5}, (1, 1)),
        # Dual clip: also A = -1 with ratio 3.5 > 3.
        ({"name": "dual_clip", "dual": 3.0}, (1, 3)),
        ({"name": "dual_clip", "dual": 4.0}, (1, 2)),
        # Delta: also A = -1 with a ratio above delta.
        ({"name": "two_sided", "delta": 3.0}, (1, 3)),
        ({"name": "two_sided", "delta": 1.25}, (1, 4)),
        # CISPO: the weight is clipped whatever the advantage: 3 x {0.5} below 0.8, 3 x {1.3, 3.5} above 1.2.
        ({"name": "cispo", "floor": 0.8, "cap": 1.2}, (3, 6)),
        ({"name": "cispo"}, (0, 0)),
        ({"name": "cispo", "floor": 0.8, "cap": 1.2, "outside": "zero"}, (3, 6)),
        # GMPO: bounds on log rho: log 0.5 = -0.69, log 1.3 = 0.26, log 3.5 = 1.25.
        ({"name": "gmpo"}, (1, 1)),
        ({"name": "gmpo", "low": 0.7, "high": 0.28}, (0, 1)),
        ({"name": "sapo"}, (0, 0)),
        ({"name": "plain"}, (0, 0)),
        ({"name": "log_prob"}, (0, 0)),
        ({"name": "kl_cov"}, (0, 0)),
    ],
)
def test_surrogates_report_the_tokens_whose_gradient_they_cut(surrogate: dict[str, Any], expected: tuple[int, int]):
    assert counts(surrogate) == expected


@pytest.mark.parametrize("surrogate", ["clip", "dual_clip", "two_sided"])
def test_a_token_is_counted_exactly_where_its_gradient_is_cut(surrogate: str):
    for ratio in RATIOS:
        for advantage in (1.0, -1.0):
            log_ratio_T = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
            advantage_T = torch.tensor([advantage], dtype=torch.float64)
            component = build_objective({"surrogate": {"name": surrogate}}).surrogate
            result = component.clipping({"log_ratio_T": log_ratio_T, "advantage_T": advantage_T})
            (gradient_T,) = torch.autograd.grad(result.value_T.sum(), log_ratio_T)
            assert bool(result.low_T | result.high_T) == (gradient_T.item() == 0), (ratio, advantage)


def test_clip_cov_reports_the_tokens_that_it_drops_on_the_side_of_their_advantage():
    # A = 1, 1, -1, -1 and log policy = -1, -3, -3, -1: means 0 and -2, covariances 1, -1, 1, -1.
    advantage_T = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    ratio_T = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64).exp()
    wide = {"name": "clip_cov", "low": 0.9, "high": 9.0, "cov_low": 0.5, "cov_high": 2.0}
    assert counts({**wide, "share": 0.5}, ratio_T, advantage_T) == (1, 1)
    assert counts({**wide, "share": 0.25}, ratio_T, advantage_T) in ((1, 0), (0, 1))
    # With bounds 0.8 to 1.2 both covarying tokens are clipped by their ratios, e > 1.2 and 1 / e < 0.8.
    assert counts({**wide, "low": 0.2, "high": 0.2, "share": 0.5}, ratio_T, advantage_T) == (1, 1)


def test_the_trust_region_reports_the_tokens_that_it_drops():
    # Old probability e^-2 = 0.135. Probabilities 0.068, 0.122, 0.149, 0.176, 0.474: moves of -0.068 and +0.338
    # exceed 0.05. A = 1 drops the rise, A = -1 the fall, A = 0 (as A < 0) the fall.
    region = {"name": "trust_region", "low": 0.05, "high": 0.05}
    assert counts({"name": "plain"}, correction=region) == (2, 1)
    assert counts({"name": "plain"}, correction={**region, "sided": False}) == (3, 3)
    # A token that both the clip and the trust region cut is counted once: the low side of A = -1, the rise of A = 1.
    assert counts({"name": "clip"}, correction=region) == (2, 2)
