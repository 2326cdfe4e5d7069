"""Masks: which response tokens count at all. Rejected tokens leave the denominators of the weights too.

Axes: N rollouts, T response tokens. A mask is True at the tokens that it keeps.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.components import Function, formula
from ansatz.registry import Registry

MASKS: Registry[Function] = Registry("masks")


@MASKS.register("not_truncated", "overlong", "mask_truncated")
@formula("rollouts that hit the length limit are excluded from the loss; their rewards stay in the group")
def not_truncated(segment_T: Tensor, truncated_N: Tensor) -> Tensor:
    """Overlong filtering (DAPO, arXiv:2503.14476): a truncated response is neither correct nor incorrect."""
    return ~truncated_N.bool()[segment_T]


@MASKS.register("rejection")
@formula(
    "tokens are excluded where the {level} {estimator} of behavior to old is outside [{low}, {high}]",
    words={"low": {None: "-inf"}, "high": {None: "inf"}},
)
def rejection(
    old_logp_T: Tensor,
    behavior_logp_T: Tensor,
    segment_T: Tensor,
    *,
    estimator: Literal["k1", "k2", "k3"] = "k2",
    level: Literal["token", "sum", "mean", "max"] = "token",
    low: float | None = None,
    high: float | None = 0.1,
) -> Tensor:
    """Reject tokens whose log-probs differ too much between sampler and trainer (verl's rollout correction).

    estimator, of x = log(old / behavior): "k1", -x; "k2", x^2 / 2; "k3", exp(x) - 1 - x. level: "token", or the "sum",
    "mean" or "max" over a rollout, which is then kept or rejected as a whole.
    """
    x_T = old_logp_T - behavior_logp_T
    value_T = {"k1": -x_T, "k2": x_T.square() / 2, "k3": torch.expm1(x_T) - x_T}[estimator]
    if level != "token":
        reduce = {"sum": segments.total, "mean": segments.mean, "max": segments.largest}[level]
        value_T = reduce(value_T, segment_T, segments.num_segments(segment_T))[segment_T]
    above_T = value_T >= (-torch.inf if low is None else low)
    return above_T & (value_T <= (torch.inf if high is None else high))
