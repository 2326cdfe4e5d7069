"""Adaptive coefficients, as pure functions of the previous coefficient and an observation."""

from __future__ import annotations


def adapt_kl_coef(coef: float, kl: float, *, target: float, horizon: int, num_rollouts: int) -> float:
    """Proportional control of the KL (Ziegler et al., arXiv:1909.08593).

    kl and target: in nats, in the same unit (per token or per rollout). num_rollouts: rollouts since the last call.
    horizon: rollouts over which the coefficient responds in full.
    """
    error = min(max(kl / target - 1, -0.2), 0.2)
    return coef * (1 + error * num_rollouts / horizon)


def adapt_entropy_coef(
    coef: float, entropy: float, *, target: float, step: float = 1e-3, highest: float = 0.02
) -> float:
    """The coefficient plus `step` while the entropy (nats per token) is below its target, else minus `step`, within
    [0, highest] (Skywork-OR1, arXiv:2505.22312).

    Without an upper bound the bonus can outweigh the reward, and the policy degenerates to noise.
    """
    return min(max(coef + (step if entropy < target else -step), 0.0), highest)
