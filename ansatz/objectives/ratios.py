"""Importance ratios: log of policy over anchor, per token or shared by a rollout.

Axes: T response tokens. `old_logp_T` is the anchor: log-probs before the update, the sampler's, or the policy's own without
gradient (recipe key `anchor`).
"""

from __future__ import annotations

from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.pieces import Function, formula
from ansatz.registry import Registry

RATIOS: Registry[Function] = Registry("ratio")


@RATIOS.register("token")
@formula("rho = policy / anchor, each token its own")
def token(policy_logp_T: Tensor, old_logp_T: Tensor, *, clamp: float | None = None) -> Tensor:
    """log rho_t = policy_logp - old_logp (PPO, arXiv:1707.06347). clamp: bound on |log rho|, no gradient beyond."""
    return _clamped(policy_logp_T - old_logp_T, clamp)


@RATIOS.register("sequence", "gspo")
@formula("rho = geometric mean of policy / anchor over the rollout's tokens, gradient through the {gradient}")
def sequence(
    policy_logp_T: Tensor,
    old_logp_T: Tensor,
    segment_T: Tensor,
    *,
    gradient: str = "sequence",
    clamp: float | None = None,
) -> Tensor:
    """log rho = mean over the rollout of log-ratios, the same on each of its tokens (GSPO, arXiv:2507.18071 eq. 7).

    gradient: "sequence", through the mean; "token", each token its own (GSPO-token, eq. 13; equal for equal advantages).
    clamp: upper bound on log rho.
    """
    rollouts = segments.num_segments(segment_T)
    mean_T = segments.mean(policy_logp_T - old_logp_T, segment_T, rollouts)[segment_T]
    if gradient == "token":
        mean_T = mean_T.detach() + policy_logp_T - policy_logp_T.detach()
    return mean_T if clamp is None else mean_T.clamp(max=clamp)


@RATIOS.register("product")
@formula("rho = product of policy / anchor over the rollout's tokens")
def product(policy_logp_T: Tensor, old_logp_T: Tensor, segment_T: Tensor) -> Tensor:
    """log rho = sum over the rollout of log-ratios: the exact importance ratio of the whole response (RLOO, Kimi k1.5)."""
    return segments.total(policy_logp_T - old_logp_T, segment_T, segments.num_segments(segment_T))[segment_T]


def _clamped(log_ratio_T: Tensor, bound: float | None) -> Tensor:
    return log_ratio_T if bound is None else log_ratio_T.clamp(-bound, bound)
