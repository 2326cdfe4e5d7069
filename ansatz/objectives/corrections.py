"""Corrections of what the ratio cannot see: a factor on each token's surrogate, without gradient.

Axes: T response tokens. Sampler and trainer are two programs and disagree a little about log-probs; the ratio
w = exp(old_logp - behavior_logp) weighs that difference. Factors leave the denominators of the weights as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.pieces import Function, formula
from ansatz.registry import Registry

CORRECTIONS: Registry[Function] = Registry("correction")


@CORRECTIONS.register("truncate", "tis", "truncated")
@formula("x clip(w, {low}, {high}), w = old / behavior of each {level}")
def truncate(
    old_logp_T: Tensor,
    behavior_logp_T: Tensor,
    segment_T: Tensor,
    *,
    level: str = "token",
    low: float | None = None,
    high: float | None = 2.0,
) -> Tensor:
    """w clipped into [low, high] (truncated importance sampling, fengyao.notion.site/off-policy-rl)."""
    lowest, highest = -torch.inf if low is None else low, torch.inf if high is None else high
    return _weight(old_logp_T, behavior_logp_T, segment_T, level).clamp(lowest, highest)


@CORRECTIONS.register("mask_outside", "icepop")
@formula("x w where {low} <= w <= {high}, else 0, w = old / behavior of each {level}")
def mask_outside(
    old_logp_T: Tensor,
    behavior_logp_T: Tensor,
    segment_T: Tensor,
    *,
    level: str = "token",
    low: float | None = 0.5,
    high: float | None = 2.0,
) -> Tensor:
    """w where it lies within [low, high], 0 elsewhere (IcePop, ringtech.notion.site/icepop)."""
    weight_T = _weight(old_logp_T, behavior_logp_T, segment_T, level)
    return torch.where(_inside(weight_T, low, high), weight_T, torch.zeros_like(weight_T))


def _weight(old_logp_T: Tensor, behavior_logp_T: Tensor, segment_T: Tensor, level: str) -> Tensor:
    """exp(old - behavior): of the token, of the product over its rollout ("sequence"), or its geometric mean ("mean")."""
    log_T = (old_logp_T - behavior_logp_T).detach()
    if level == "token":
        return log_T.exp()
    reduce = segments.mean if level == "mean" else segments.total
    return reduce(log_T, segment_T, segments.num_segments(segment_T))[segment_T].exp()


def _inside(value_T: Tensor, low: float | None, high: float | None) -> Tensor:
    inside_T = torch.ones_like(value_T, dtype=torch.bool)
    if low is not None:
        inside_T &= value_T >= low
    if high is not None:
        inside_T &= value_T <= high
    return inside_T
