"""Surrogates: the loss of one response token, before weights.

Axes: T response tokens. Each takes what it names of `log_ratio_T` (log rho, with gradient), `policy_logp_T`, `old_logp_T` and
`advantage_T`, and gives `loss_T`; lower is better. At rho = 1 all of them have the gradient -A grad log pi.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ansatz.objectives.pieces import Function, formula
from ansatz.registry import Registry

SURROGATES: Registry[Function] = Registry("surrogate")


@SURROGATES.register("plain", "importance_sampling")
@formula("-rho A")
def plain(log_ratio_T: Tensor, advantage_T: Tensor) -> Tensor:
    """-rho A: the importance-weighted policy gradient, no bound on the step."""
    return -log_ratio_T.exp() * advantage_T


@SURROGATES.register("log_prob", "reinforce", "gpg")
@formula("-A log policy")
def log_prob(policy_logp_T: Tensor, advantage_T: Tensor) -> Tensor:
    """-A log pi: REINFORCE (Williams 1992); ignores how far the policy has moved."""
    return -advantage_T * policy_logp_T


@SURROGATES.register("clip", "ppo", "vanilla", "regular")
@formula("-min(rho A, clip(rho, 1 - {low}, 1 + {high}) A)")
def clip(log_ratio_T: Tensor, advantage_T: Tensor, *, low: float = 0.2, high: float = 0.2) -> Tensor:
    """PPO's clipped surrogate (arXiv:1707.06347 eq. 7) with the two ranges of DAPO (arXiv:2503.14476 eq. 10)."""
    ratio_T = log_ratio_T.exp()
    return torch.maximum(-ratio_T * advantage_T, -ratio_T.clamp(1 - low, 1 + high) * advantage_T)
