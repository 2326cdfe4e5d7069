"""Importance ratios: log rho, policy over anchor, per token or shared by a rollout.

Axes: T tokens that count in the loss, N their rollouts. `anchor_logp_T`: log-probs before the update, the sampler's
log-probs, or the policy's own without gradient (recipe key `anchor`: old, behavior, policy).

As in every component, the parameters before `*` are inputs, which a step passes by name, and those after it are
settings of the recipe. `register` gives the names that a recipe can use for it. `ansatz explain` prints the `formula`,
and adds the `notes` for settings that are not off. `Objective.ratio` is a `components.Component`: one of these
functions with its settings, called with a mapping of its inputs. `segments` contains sums and counts by rollout.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.components import Function, formula
from ansatz.registry import Registry

RATIOS: Registry[Function] = Registry("ratio")


@RATIOS.register("token")
@formula("rho = policy / anchor of the token", notes={"clamp": ", log rho within +-{clamp}"})
def token(policy_logp_T: Tensor, anchor_logp_T: Tensor, *, clamp: float | None = None) -> Tensor:
    """log rho_t = policy_logp - anchor_logp (PPO, arXiv:1707.06347).

    clamp: bound on |log rho| on both sides (20 in verl), no gradient beyond.
    """
    log_ratio_T = policy_logp_T - anchor_logp_T
    return log_ratio_T if clamp is None else log_ratio_T.clamp(-clamp, clamp)


@RATIOS.register("sequence", "gspo")
@formula(
    "rho = geometric mean of policy / anchor over the rollout, gradient through each {gradient}",
    notes={"clamp": ", log rho at most {clamp}", "mean_eps": ", {mean_eps} added to the length of the rollout"},
)
def sequence(
    policy_logp_T: Tensor,
    anchor_logp_T: Tensor,
    segment_T: Tensor,
    *,
    gradient: Literal["sequence", "token"] = "sequence",
    clamp: float | None = None,
    mean_eps: float = 0.0,
) -> Tensor:
    """log rho = mean over the rollout of log-ratios, the same at all its tokens (GSPO, arXiv:2507.18071 eq. 7).

    gradient: "sequence", through the mean; "token", through the log-prob of each token (GSPO-token, eq. 13). clamp:
    upper bound on log rho only (10 in verl). mean_eps: added to the length that the mean divides by.
    """
    log_ratio_T = policy_logp_T - anchor_logp_T
    num_rollouts = segments.num_segments(segment_T)
    length_N = segments.count(segment_T, num_rollouts).clamp(min=1).to(log_ratio_T.dtype) + mean_eps
    mean_T = (segments.total(log_ratio_T, segment_T, num_rollouts) / length_N)[segment_T]
    if gradient == "token":
        mean_T = mean_T.detach() + policy_logp_T - policy_logp_T.detach()
    return mean_T if clamp is None else mean_T.clamp(max=clamp)


@RATIOS.register("product")
@formula("rho = product of policy / anchor over the rollout")
def product(policy_logp_T: Tensor, anchor_logp_T: Tensor, segment_T: Tensor) -> Tensor:
    """log rho = sum over the rollout of log-ratios: the exact ratio of the whole response (RLOO, Kimi k1.5)."""
    log_ratio_T = policy_logp_T - anchor_logp_T
    return segments.total(log_ratio_T, segment_T, segments.num_segments(segment_T))[segment_T]
