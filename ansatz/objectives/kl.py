"""Estimators of KL(policy || reference) from the log-prob of the token that was drawn, and the exact sum.

Axes: T response tokens, V vocabulary. With x = policy_logp - ref_logp and tokens drawn from the policy (J. Schulman,
joschu.net/blog/kl-approx.html): k1 = x and k3 = exp(-x) - 1 + x are unbiased, k2 = x^2 / 2 and |x| are not; k2, k3, |x| >= 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ansatz.objectives.pieces import Function, formula
from ansatz.registry import Registry

KLS: Registry[Function] = Registry("kl")


@KLS.register("k1", "kl")
@formula("log(policy / reference)")
def k1(policy_logp_T: Tensor, ref_logp_T: Tensor) -> Tensor:
    """x: unbiased, any sign. Its gradient in the loss is 0 on average; use it in the reward."""
    return policy_logp_T - ref_logp_T


@KLS.register("k2", "mse")
@formula("log(policy / reference)^2 / 2")
def k2(policy_logp_T: Tensor, ref_logp_T: Tensor) -> Tensor:
    """x^2 / 2: biased value, whose gradient is the unbiased gradient of the KL on-policy."""
    return (policy_logp_T - ref_logp_T).square() / 2


@KLS.register("k3", "low_var_kl")
@formula("reference / policy - 1 - log(reference / policy)")
def k3(policy_logp_T: Tensor, ref_logp_T: Tensor) -> Tensor:
    """exp(-x) - 1 + x: unbiased, never negative (GRPO, arXiv:2402.03300 eq. 4)."""
    x_T = ref_logp_T - policy_logp_T
    return torch.expm1(x_T) - x_T
