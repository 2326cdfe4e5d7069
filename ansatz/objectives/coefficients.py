"""Coefficients that follow what they control. Pure: old coefficient and observation in, new coefficient out."""

from __future__ import annotations


def adapt_kl_coef(coef: float, kl: float, *, target: float, horizon: int, num_rollouts: int) -> float:
    """Proportional control of the KL (Ziegler et al., arXiv:1909.08593).

    kl: observed, nats, of what target is in; num_rollouts: seen since the last call; horizon: rollouts of a full
    response.
    """
    error = min(max(kl / target - 1, -0.2), 0.2)
    return coef * (1 + error * num_rollouts / horizon)


def adapt_entropy_coef(
    coef: float, entropy: float, *, target: float, step: float = 1e-3, highest: float = 0.02
) -> float:
    """Up a step while entropy (nats a token) is below target, else down, within [0, highest] (Skywork-OR1,
    arXiv:2505.22312).

    Without a ceiling the bonus can win over the reward and the policy dissolves into noise.
    """
    return min(max(coef + (step if entropy < target else -step), 0.0), highest)
