"""Adaptive coefficients, as pure functions of the previous coefficient and an observation."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ansatz.objectives.components import Component, Function, formula
from ansatz.registry import Registry

KL_CONTROLS: Registry[Function] = Registry("kl_control")


@KL_CONTROLS.register("adaptive", "ziegler")
@formula(
    "after each step kl_coef x (1 + clip(KL per {per} / {target} - 1, -0.2, 0.2) x rollouts of the step / {horizon})"
)
def adaptive(
    kl_coef: Tensor,
    rollout_kl: Tensor,
    token_kl: Tensor,
    num_rollouts: Tensor,
    *,
    target: float,
    horizon: float = 10_000.0,
    per: Literal["rollout", "token"] = "rollout",
) -> Tensor:
    """Proportional control of the KL to the reference (Ziegler et al., arXiv:1909.08593, sec. 2.2).

    target: nats of a whole response, or of a token if `per` is "token", as in verl. horizon: number of rollouts until
    the coefficient has responded in full. Inputs and result are float64 numbers without axes.
    """
    observed = rollout_kl if per == "rollout" else token_kl
    return kl_coef * (1 + (observed / target - 1).clamp(-0.2, 0.2) * num_rollouts / horizon)


def adapt_kl_coef(control: Component, coef: float, *, token_kl: float, num_tokens: int, num_rollouts: int) -> float:
    """Return the coefficient of the next step, by a component of `KL_CONTROLS`.

    token_kl: mean KL to the reference in nats per token, over the num_tokens response tokens of num_rollouts rollouts.
    """
    observed = {"token_kl": token_kl, "rollout_kl": token_kl * num_tokens / num_rollouts}
    inputs = {"kl_coef": coef, "num_rollouts": num_rollouts, **observed}
    return float(control({name: torch.tensor(value, dtype=torch.float64) for name, value in inputs.items()}))


HIGHEST_ENTROPY_COEF = 0.02
"""Without an upper bound the bonus can outweigh the reward, and the policy degenerates to noise."""


def adapt_entropy_coef(coef: float, entropy: float, *, target: float, step: float = 1e-3) -> float:
    """Return the coefficient plus `step` while the entropy (nats per token) is below its target, else minus `step`,
    within [0, HIGHEST_ENTROPY_COEF] (Skywork-OR1, arXiv:2505.22312)."""
    return min(max(coef + (step if entropy < target else -step), 0.0), HIGHEST_ENTROPY_COEF)
