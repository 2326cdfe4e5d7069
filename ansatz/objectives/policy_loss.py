"""The loss of any algorithm on a user's padded tensors, for training loops outside this package.

Axes: N rollouts, L positions of the padded responses, T flat tokens (those inside the mask).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ansatz.errors import ConfigError
from ansatz.objectives.build import build_objective, missing_inputs
from ansatz.objectives.components import INPUTS
from ansatz.objectives.objective import Objective
from ansatz.objectives.segments import renumbered

_NOT_SUPPLIED = {
    "value_T", "old_value_T", "return_T", "baseline_N", "component_NK", "step_reward_T",
    "step_end_T", "truncated_N", "entropy_T", "full_kl_T",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """loss: a scalar with gradient. advantage_NL: detached, 0 outside the mask. metrics: the numbers that a run logs as
    train/NAME, see docs/metrics.md."""

    loss: Tensor
    advantage_NL: Tensor
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTensors:
    """Flat tokens as plain tensors: a `TokenBatch` for losses outside a training run."""

    segment_T: Tensor
    mask_T: Tensor
    sampled_mask_T: Tensor
    old_logp_T: Tensor
    behavior_logp_T: Tensor
    ref_logp_T: Tensor | None
    advantage_T: Tensor
    weight_T: Tensor
    penalty_weight_T: Tensor | None
    likelihood_weight_T: Tensor | None


def policy_loss(
    policy_logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    *,
    groups: Tensor,
    mask: Tensor,
    algorithm: str | Mapping[str, Any] = "grpo",
    ref_logp: Tensor | None = None,
    behavior_logp: Tensor | None = None,
) -> PolicyLoss:
    """The policy loss of a step, to be minimised.

    policy_logp, old_logp: [N, L] log-probs in nats of the sampled response tokens, with gradient and from before the
    update. rewards: [N]. groups: [N] integers, equal for responses to the same prompt. mask: [N, L], true for response
    tokens; values outside it do not matter. algorithm: a preset, or a mapping like a recipe's `algorithm:` section.
    ref_logp: [N, L], needed for a KL to a reference. behavior_logp: [N, L], the sampler's log-probs, if they differ
    from old_logp.

    The tensors are one minibatch: its losses are weighted as one optimizer step. Raise ConfigError for an algorithm
    that needs more than these inputs, such as a critic or entropies.
    """
    _check_tensors(policy_logp=policy_logp, old_logp=old_logp, rewards=rewards, groups=groups, mask=mask)
    optional = {"ref_logp": ref_logp, "behavior_logp": behavior_logp}
    _check_tensors(**{name: value for name, value in optional.items() if value is not None})
    spec = {"preset": algorithm} if isinstance(algorithm, str) else algorithm
    objective = build_objective(spec)
    mask_NL = mask.bool()
    _check_shapes(mask_NL, rewards, groups, policy_logp, old_logp, ref_logp, behavior_logp)
    _check_inputs(objective, has_ref=ref_logp is not None)

    policy_logp = _widened(policy_logp)
    reward_N = rewards.to(policy_logp)
    group_N = renumbered(groups.to(policy_logp.device))[0]
    segment_T = torch.arange(len(rewards), device=mask_NL.device)[:, None].expand_as(mask_NL)[mask_NL]
    sampled_T = torch.ones_like(segment_T, dtype=torch.bool)
    old_logp_T = _widened(old_logp[mask_NL].detach())
    behavior_logp_T = old_logp_T if behavior_logp is None else _widened(behavior_logp[mask_NL].detach())
    ref_logp_T = None if ref_logp is None else _widened(ref_logp[mask_NL].detach())
    logps: dict[str, Any] = {"old_logp_T": old_logp_T, "behavior_logp_T": behavior_logp_T, "ref_logp_T": ref_logp_T}

    advantages = objective.advantages(reward_N, group_N, segment_T=segment_T, mask_T=sampled_T, **logps)
    mask_T = objective.loss_mask(segment_T, sampled_T, **logps)
    batch = TokenTensors(
        segment_T=segment_T,
        mask_T=mask_T,
        sampled_mask_T=sampled_T,
        **logps,
        advantage_T=advantages.advantage_T * mask_T,
        **objective.minibatch_weights(segment_T, mask_T, reward_N, group_N=group_N, dtype=policy_logp.dtype),
    )
    parts = objective.loss(batch, policy_logp[mask_NL])
    advantage_NL = torch.zeros_like(policy_logp).masked_scatter(mask_NL, batch.advantage_T).detach()
    return PolicyLoss(loss=parts.loss, advantage_NL=advantage_NL, metrics=_metrics(parts.sums, parts.maxima))


def _widened(logp: Tensor) -> Tensor:
    """Return log-probs in float32 at least: sums of many tokens would lose most of them in fewer bits."""
    return logp if logp.dtype in (torch.float32, torch.float64) else logp.float()


def _check_tensors(**values: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"policy_loss: {name} = {value!r:.80}; expected a tensor.")


def _check_shapes(mask_NL: Tensor, rewards: Tensor, groups: Tensor, *logps: Tensor | None) -> None:
    if mask_NL.dim() != 2:
        raise ConfigError(f"policy_loss: mask has the shape {tuple(mask_NL.shape)}; expected [rollouts, positions].")
    for tensor in logps:
        if tensor is not None and tensor.shape != mask_NL.shape:
            raise ConfigError(
                f"policy_loss: log-probs have the shape {tuple(tensor.shape)}, but mask has {tuple(mask_NL.shape)}. "
                "Both are [rollouts, positions]."
            )
    for name, tensor in (("rewards", rewards), ("groups", groups)):
        if tensor.shape != mask_NL.shape[:1]:
            raise ConfigError(
                f"policy_loss: {name} has the shape {tuple(tensor.shape)}; expected one per rollout, [{len(mask_NL)}]."
            )


def _check_inputs(objective: Objective, *, has_ref: bool) -> None:
    """Raise ConfigError if the objective needs more than this function takes."""
    for component, name in missing_inputs(objective, frozenset(INPUTS) - _NOT_SUPPLIED):
        raise ConfigError(
            f"policy_loss: algorithm.{component.kind} = {component.name!r} needs {INPUTS.get(name, name)} ({name}), "
            "which this function does not take. Use objectives.build_objective and Objective.loss."
        )
    if objective.needs_entropy:
        raise ConfigError("policy_loss takes no entropies: set entropy_coef: 0 and entropy_target: null in algorithm.")
    if objective.needs_ref and "full_kl_T" in objective.kl.inputs:
        raise ConfigError("policy_loss cannot compute algorithm.kl = 'full'. Use an estimator, such as k3.")
    if objective.needs_ref and not has_ref:
        raise ConfigError(
            f"policy_loss: kl_coef = {objective.kl_coef} needs the log-probs of the reference. Pass ref_logp, or set "
            "kl_coef: 0 in algorithm."
        )


def _metrics(sums: Mapping[str, Tensor], maxima: Mapping[str, Tensor]) -> dict[str, float]:
    tokens = float(sums["tokens"])
    per_token = {
        "ratio_mean": float(sums["ratio"]),
        "clip_frac": float(sums["clipped_low"]) + float(sums["clipped_high"]),
        "approx_kl": float(sums["approx_kl"]),
    }
    if "kl" in sums:
        per_token["kl_ref"] = float(sums["kl"])
    means = {name: value / tokens if tokens else 0.0 for name, value in per_token.items()}
    return {**means, "ratio_max": float(maxima["ratio"]), "tokens": tokens}
