"""Corrections: a factor on each token's surrogate, without gradient. The denominators of the weights do not change.

Axes: N rollouts, T response tokens. Sampler and trainer are two programs and compute slightly different log-probs.
`truncate`, `mask_outside` and `drop_outside` correct for this with w = old / behavior. Their `level` is the unit of w:
a "token", a "sequence" (the product over the rollout) or its "mean" (the geometric mean over the rollout). They always
see all tokens that the policy sampled: the weight of a rollout must not depend on which of its tokens a mask rejects.

Masks say which response tokens count at all: they are True at the tokens that they keep. Rejected tokens leave the
denominators of the weights too.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.components import Clipped, ClippingFunction, Function, formula, sees_rejected, whole_minibatch
from ansatz.registry import Registry

CORRECTIONS: Registry[ClippingFunction] = Registry("correction")
MASKS: Registry[Function] = Registry("masks")
Level = Literal["token", "sequence", "mean"]

_WORDS = {
    "low": {None: "0"},
    "high": {None: "inf"},
    "level": {
        "token": "of the token",
        "sequence": "multiplied over the rollout",
        "mean": "of the rollout (geometric mean)",
        "any": "of each token; a rollout with one outside has 0 at all",
    },
}
_NORMALIZED = {"self_normalize": {True: ", divided by its mean over the minibatch (number + {mean_eps})"}}


@CORRECTIONS.register("truncate", "tis", "truncated")
@sees_rejected
@formula("x clip(w, {low}, {high}), w = old / behavior {level}", words=_WORDS, notes=_NORMALIZED)
def truncate(
    old_logp_T: Tensor,
    behavior_logp_T: Tensor,
    segment_T: Tensor,
    *,
    level: Level = "token",
    low: float | None = None,
    high: float | None = 2.0,
    self_normalize: bool = False,
    mean_eps: float = 0.0,
) -> Tensor:
    """w clipped into [low, high]: truncated importance sampling (fengyao.notion.site/off-policy-rl).

    self_normalize: divide by the mean over the minibatch, which must then be one microbatch. The mean is over tokens,
    or over rollouts if level is not "token"; mean_eps is added to the number of tokens that means divide by.
    """
    lowest, highest = -torch.inf if low is None else low, torch.inf if high is None else high
    weight_T = _weight(old_logp_T, behavior_logp_T, segment_T, level).clamp(lowest, highest)
    return _normalized(weight_T, segment_T, level, mean_eps) if self_normalize else weight_T


@CORRECTIONS.register("mask_outside", "icepop")
@sees_rejected
@formula("x w where {low} <= w <= {high}, else 0, w = old / behavior {level}", words=_WORDS, notes=_NORMALIZED)
def mask_outside(
    old_logp_T: Tensor,
    behavior_logp_T: Tensor,
    segment_T: Tensor,
    *,
    level: Level = "token",
    low: float | None = 0.5,
    high: float | None = 5.0,
    self_normalize: bool = False,
    mean_eps: float = 0.0,
) -> Tensor:
    """w within [low, high], 0 elsewhere (IcePop, arXiv:2510.18855). self_normalize, mean_eps: as in `truncate`."""
    weight_T = _weight(old_logp_T, behavior_logp_T, segment_T, level)
    weight_T = weight_T * _inside(weight_T, low, high)
    return _normalized(weight_T, segment_T, level, mean_eps) if self_normalize else weight_T


@CORRECTIONS.register("drop_outside")
@sees_rejected
@formula("x 1 where {low} <= w <= {high}, else 0, w = old / behavior {level}", words=_WORDS)
def drop_outside(
    old_logp_T: Tensor,
    behavior_logp_T: Tensor,
    segment_T: Tensor,
    *,
    level: Literal["token", "sequence", "mean", "any"] = "mean",
    low: float | None = 0.5,
    high: float | None = 2.0,
) -> Tensor:
    """1 within [low, high], 0 elsewhere: filter without weighting (geometric masking, MIS).

    level "any": drop the whole rollout if any of its tokens is outside.
    """
    if level != "any":
        return _inside(_weight(old_logp_T, behavior_logp_T, segment_T, level), low, high).to(old_logp_T.dtype)
    outside_T = ~_inside(_weight(old_logp_T, behavior_logp_T, segment_T, "token"), low, high)
    outside_N = segments.total(outside_T.to(old_logp_T.dtype), segment_T, segments.num_segments(segment_T))
    return (outside_N == 0)[segment_T].to(old_logp_T.dtype)


@CORRECTIONS.register("total_variation", "vaco")
@sees_rejected
@formula(
    "x 0 at tokens with A log w > 0 on rollouts whose mean |w - 1| is outside [{low}, {high}], w = old / behavior",
    words=_WORDS,
)
def total_variation(
    old_logp_T: Tensor,
    behavior_logp_T: Tensor,
    advantage_T: Tensor,
    segment_T: Tensor,
    *,
    low: float | None = None,
    high: float | None = 2.0,
) -> Tensor:
    """1, or 0 where sampler and trainer disagree too much over a rollout (VACO, arXiv:2603.01365).

    Only tokens whose update would increase the total variation are dropped.
    """
    log_T = old_logp_T - behavior_logp_T
    mean_N = segments.mean(log_T.expm1().abs(), segment_T, segments.num_segments(segment_T))
    dropped_T = ~_inside(mean_N, low, high)[segment_T] & (log_T.sign() * advantage_T > 0)
    return (~dropped_T).to(old_logp_T.dtype)


@CORRECTIONS.register("stale_negatives", "opsm")
@formula("x 0 on rollouts with A < 0 whose mean log({sampler} / policy) > {threshold}")
def stale_negatives(
    policy_logp_T: Tensor,
    old_logp_T: Tensor,
    behavior_logp_T: Tensor,
    advantage_T: Tensor,
    segment_T: Tensor,
    *,
    threshold: float = 0.1,
    sampler: Literal["old", "behavior"] = "old",
) -> Tensor:
    """Off-policy sequence masking (DeepSeek-V3.2, arXiv:2512.02556).

    It drops responses with A < 0 that the policy has moved away from.
    """
    sampler_T = behavior_logp_T if sampler == "behavior" else old_logp_T
    gap_T = (sampler_T - policy_logp_T).detach()
    gap_N = segments.mean(gap_T, segment_T, segments.num_segments(segment_T))
    return (~((advantage_T < 0) & (gap_N[segment_T] > threshold))).to(policy_logp_T.dtype)


@CORRECTIONS.register("high_entropy")
@whole_minibatch
@formula("x 1 on the share {share} of tokens with the highest entropy, else 0")
def high_entropy(entropy_T: Tensor, *, share: float = 0.2) -> Tensor:
    """Learning from forking tokens alone (arXiv:2506.01939): those with entropy >= its (1 - share) quantile in the
    minibatch."""
    entropy_T = entropy_T.detach()
    return (entropy_T >= _quantile(entropy_T, 1 - share)).to(entropy_T.dtype)


@CORRECTIONS.register("trust_region", "dppo")
@formula(
    "x 0 where {divergence} > {high} (A > 0) or > {low} (else){sided}",
    words={
        "divergence": {"tv": "|policy - anchor|", "kl": "KL(anchor, policy) between the token and all others"},
        "sided": {True: " in the direction of A", False: ""},
    },
)
def trust_region(
    policy_logp_T: Tensor,
    anchor_logp_T: Tensor,
    advantage_T: Tensor,
    *,
    divergence: Literal["tv", "kl"] = "tv",
    low: float = 0.2,
    high: float = 0.2,
    sided: bool = True,
) -> Clipped:
    """Drop tokens by how far their probability has moved, not by their ratio (DPPO, arXiv:2602.04879).

    divergence: "tv", |p - q|, or "kl", the KL of anchor to policy between this token and all others. sided: only moves
    in the direction of the advantage count (up where A > 0, down elsewhere); False: any move. Dropped tokens count as
    clipped: above where the probability rose, below where it fell.
    """
    p_T, q_T = policy_logp_T.detach().exp(), anchor_logp_T.exp()
    moved_T = p_T - q_T
    distance_T = moved_T.abs() if divergence == "tv" else _binary_kl(q_T, p_T)
    bound_T = torch.full_like(p_T, low).masked_fill(advantage_T > 0, high)
    away_T = torch.where(advantage_T > 0, moved_T > 0, moved_T < 0) if sided else torch.ones_like(moved_T).bool()
    outside_T = (distance_T > bound_T) & away_T
    return Clipped((~outside_T).to(policy_logp_T.dtype), outside_T & (moved_T < 0), outside_T & (moved_T >= 0))


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


def _weight(old_logp_T: Tensor, behavior_logp_T: Tensor, segment_T: Tensor, level: Level) -> Tensor:
    """Return old / behavior of the token, of the product over its rollout ("sequence"), or of its geometric mean
    ("mean")."""
    log_T = old_logp_T - behavior_logp_T
    if level == "token":
        return log_T.exp()
    reduce = segments.mean if level == "mean" else segments.total
    return reduce(log_T, segment_T, segments.num_segments(segment_T))[segment_T].exp()


def _normalized(weight_T: Tensor, segment_T: Tensor, level: Level, mean_eps: float) -> Tensor:
    if level == "token":
        mean = weight_T.sum() / (len(weight_T) + mean_eps)
    else:
        length_N = segments.count(segment_T, segments.num_segments(segment_T)).to(weight_T.dtype)
        total_N = segments.total(weight_T, segment_T, len(length_N))
        mean = (total_N / (length_N + mean_eps).clamp(min=1)).sum() / (length_N > 0).sum().clamp(min=1)
    return weight_T / torch.where(mean > 0, mean, torch.ones_like(mean))


def _inside(value_T: Tensor, low: float | None, high: float | None) -> Tensor:
    inside_T = torch.ones_like(value_T, dtype=torch.bool)
    if low is not None:
        inside_T &= value_T >= low
    if high is not None:
        inside_T &= value_T <= high
    return inside_T


def _binary_kl(q_T: Tensor, p_T: Tensor) -> Tensor:
    """Return the KL, in nats, between the coins (q, 1 - q) and (p, 1 - p)."""
    tiny = torch.finfo(p_T.dtype).tiny
    others_T = (1 - q_T) * ((1 - q_T).clamp(min=tiny) / (1 - p_T).clamp(min=tiny)).log()
    return q_T * (q_T.clamp(min=tiny) / p_T.clamp(min=tiny)).log() + others_T


def _quantile(value_T: Tensor, share: float) -> Tensor:
    """Interpolate linearly between order statistics; torch.quantile refuses more than 16 million entries."""
    ordered_T = value_T.sort().values
    place = share * (len(ordered_T) - 1)
    below = int(place)
    above = min(below + 1, len(ordered_T) - 1)
    return torch.lerp(ordered_T[below], ordered_T[above], place - below)
