"""Estimators of KL(policy || reference) from the token that was drawn, and the exact sum.

Axes: T response tokens, V vocabulary. With x = policy_logp - ref_logp and tokens drawn from the policy (J. Schulman,
joschu.net/blog/kl-approx.html): k1 = x and k3 = exp(-x) - 1 + x are unbiased, k2 = x^2 / 2 and |x| are not; all but
k1 are >= 0.

Every estimator has the same settings:
clamp_in, clamp_out: bounds on |x| and on the value, no gradient beyond.
weight: a factor with gradient: "none"; "on_policy", policy / constant(policy): value 1, adds the score-function part
that makes the gradient unbiased on-policy; "ratio", the objective's rho; "behavior", policy / behavior (both:
off-policy too). straight_through: the value of the estimator with the gradient of k2, which is the KL's own
on-policy.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ansatz.objectives.pieces import Function, formula
from ansatz.registry import Registry

KLS: Registry[Function] = Registry("kl")
Weight = Literal["none", "on_policy", "ratio", "behavior"]


@KLS.register("k1", "kl")
@formula("log(policy / reference)", "1")
def k1(
    policy_logp_T: Tensor,
    ref_logp_T: Tensor,
    log_ratio_T: Tensor,
    behavior_logp_T: Tensor,
    *,
    at_least: float | None = None,
    clamp_in: float | None = None,
    clamp_out: float | None = None,
    weight: Weight = "none",
    straight_through: bool = False,
) -> Tensor:
    """x: unbiased, any sign; its plain gradient in the loss is 0 on average, so use it in the reward or with a weight.

    at_least: PPO's reward clamps it to 0 from below.
    """
    x_T = _difference(policy_logp_T, ref_logp_T, clamp_in)
    value_T = x_T if at_least is None else x_T.clamp(min=at_least)
    return _finish(
        value_T, policy_logp_T, ref_logp_T, log_ratio_T, behavior_logp_T, clamp_out, weight, straight_through
    )


@KLS.register("k2", "mse")
@formula("log(policy / reference)^2 / 2", "log(policy / reference)")
def k2(
    policy_logp_T: Tensor,
    ref_logp_T: Tensor,
    log_ratio_T: Tensor,
    behavior_logp_T: Tensor,
    *,
    clamp_in: float | None = None,
    clamp_out: float | None = None,
    weight: Weight = "none",
    straight_through: bool = False,
) -> Tensor:
    """x^2 / 2: biased value, whose gradient is the KL's own on-policy."""
    value_T = _difference(policy_logp_T, ref_logp_T, clamp_in).square() / 2
    return _finish(
        value_T, policy_logp_T, ref_logp_T, log_ratio_T, behavior_logp_T, clamp_out, weight, straight_through
    )


@KLS.register("k3", "low_var_kl")
@formula("reference / policy - 1 - log(reference / policy)", "1 - reference / policy")
def k3(
    policy_logp_T: Tensor,
    ref_logp_T: Tensor,
    log_ratio_T: Tensor,
    behavior_logp_T: Tensor,
    *,
    clamp_in: float | None = None,
    clamp_out: float | None = None,
    weight: Weight = "none",
    straight_through: bool = False,
) -> Tensor:
    """exp(-x) - 1 + x: unbiased, never negative (GRPO, arXiv:2402.03300 eq. 4)."""
    x_T = _difference(policy_logp_T, ref_logp_T, clamp_in)
    value_T = torch.expm1(-x_T) + x_T
    return _finish(
        value_T, policy_logp_T, ref_logp_T, log_ratio_T, behavior_logp_T, clamp_out, weight, straight_through
    )


@KLS.register("abs")
@formula("|log(policy / reference)|", "sign(log(policy / reference))")
def abs_(
    policy_logp_T: Tensor,
    ref_logp_T: Tensor,
    log_ratio_T: Tensor,
    behavior_logp_T: Tensor,
    *,
    clamp_in: float | None = None,
    clamp_out: float | None = None,
    weight: Weight = "none",
    straight_through: bool = False,
) -> Tensor:
    """|x|: biased; the same pull however far the policy has gone."""
    value_T = _difference(policy_logp_T, ref_logp_T, clamp_in).abs()
    return _finish(
        value_T, policy_logp_T, ref_logp_T, log_ratio_T, behavior_logp_T, clamp_out, weight, straight_through
    )


@KLS.register("full")
@formula("sum over the vocabulary of policy log(policy / reference)")
def full(full_kl_T: Tensor) -> Tensor:
    """The exact KL at each token, no sampling noise; the trainer makes it from whole distributions with `exact_kl`."""
    return full_kl_T


def exact_kl(policy_logp_TV: Tensor, ref_logp_TV: Tensor) -> Tensor:
    """sum_v p (log p - log q) for rows of log-probs, shape T."""
    return (policy_logp_TV.exp() * (policy_logp_TV - ref_logp_TV)).sum(-1)


def _difference(policy_logp_T: Tensor, ref_logp_T: Tensor, bound: float | None) -> Tensor:
    x_T = policy_logp_T - ref_logp_T
    return x_T if bound is None else x_T.clamp(-bound, bound)


def _finish(
    value_T: Tensor,
    policy_logp_T: Tensor,
    ref_logp_T: Tensor,
    log_ratio_T: Tensor,
    behavior_logp_T: Tensor,
    bound: float | None,
    weight: Weight,
    straight_through: bool,
) -> Tensor:
    if weight != "none":
        logs = {
            "on_policy": lambda: policy_logp_T - policy_logp_T.detach(),
            "ratio": lambda: log_ratio_T,
            "behavior": lambda: policy_logp_T - behavior_logp_T,
        }
        value_T = value_T * logs[weight]().exp()
    if bound is not None:
        value_T = value_T.clamp(-bound, bound)
    if straight_through:
        square_T = (policy_logp_T - ref_logp_T).square() / 2
        value_T = value_T.detach() + square_T - square_T.detach()
    return value_T
