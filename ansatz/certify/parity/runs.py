"""Our components run on a case: advantages, loss and gradient; value, KL and preference losses.

Every number comes from `Objective` and the registered components, the functions that training uses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ansatz.certify.parity.cases import Case
from ansatz.objectives.advantage_rule import Advantages
from ansatz.objectives.build import build_objective
from ansatz.objectives.components import build_component
from ansatz.objectives.objective import Objective
from ansatz.objectives.preference import PREFERENCES
from ansatz.objectives.value import VALUES

Outputs = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """A TokenBatch."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a project feeds its loss, beyond the knobs.

    reward_N: rewards after shaping, when not the case's own. component_NK: reward components. values: name of the
    critic's array, which is 0 where nothing was chosen. states: see `_states`. micro_batches: equal parts in row
    order. own_weights: each part is averaged by itself, then the parts. loss_scale: data-parallel factor. bypass: the
    policy stands in for old log-probs that were never computed.
    """

    reward_N: Tensor | None = None
    component_NK: Tensor | None = None
    values: str = "values"
    states: str = "chosen"
    micro_batches: int = 1
    own_weights: bool = False
    loss_scale: float = 1.0
    bypass: bool = False


def advantage_run(case: Case, spec: Mapping[str, Any], setup: Setup | None = None) -> Outputs:
    """Advantages and returns alone."""
    setup = setup or Setup()
    objective = build_objective(spec)
    mask = case.array("mask").bool()
    made = _advantages(case, objective, setup)
    advantage = made.advantage_T.view(mask.shape)
    made_outputs = {"advantages": advantage, "advantage_N": made.advantage_N}
    return made_outputs if made.return_T is None else {**made_outputs, "returns": made.return_T.view(mask.shape)}


def policy_run(case: Case, spec: Mapping[str, Any], setup: Setup | None = None) -> Outputs:
    """Advantages, loss and its gradient, micro-batch by micro-batch as the project does."""
    setup = setup or Setup()
    objective = build_objective(spec)
    shape = case.array("mask").shape
    policy = case.array("policy_logp").reshape(-1).requires_grad_()
    made = _advantages(case, objective, setup)
    batch = _batch(case, objective, setup, made)
    entropy_T = case.flat("entropy")
    rows = shape[0] // setup.micro_batches
    losses: list[Tensor] = []
    mismatch_weights: list[Tensor] = []
    for part in range(setup.micro_batches):
        inside_T = (batch.segment_T >= part * rows) & (batch.segment_T < (part + 1) * rows)
        micro_batch = _slice(batch, inside_T, objective, rows if setup.own_weights else 0)
        entropy = entropy_T[inside_T] if entropy_T is not None and objective.needs_entropy else None
        parts = objective.loss(micro_batch, policy[inside_T], entropy)
        mismatch_weights.append(parts.mismatch_weight_T)
        losses.append(parts.loss * setup.loss_scale / (setup.micro_batches if setup.own_weights else 1))
    total = torch.stack(losses).sum()
    (gradient,) = torch.autograd.grad(total, policy)
    return {
        "advantages": made.advantage_T.view(shape),
        "advantage_N": made.advantage_N,
        **({} if made.return_T is None else {"returns": made.return_T.view(shape)}),
        **({} if setup.own_weights else {"scaled_advantages": (made.advantage_T * batch.weight_T).view(shape)}),
        "modified_response_mask": batch.mask_T.view(shape).double(),
        "loss": total,
        "loss_per_micro_batch": torch.stack(losses),
        "grad_policy_logp": gradient.view(shape),
        **_mismatch_outputs(objective, torch.cat(mismatch_weights).view(shape), batch.sampled_mask_T.view(shape)),
    }


def value_run(case: Case, weights: Any, settings: Mapping[str, Any], returns: Tensor | None = None) -> Outputs:
    """The critic's loss and its gradient. returns: N x C targets when they are not the case's own."""
    objective = build_objective({"preset": "grpo", "weights": weights})
    value = case.array("values").requires_grad_()
    mask = case.array("mask").bool()
    old = case.array("old_values" if "old_values" in case.inputs else "values")
    target = case.array("returns") if returns is None else returns
    segment_T = torch.arange(mask.shape[0]).repeat_interleave(mask.shape[1])
    weight_T = objective.token_weights(segment_T, mask.view(-1), num_rollouts=len(mask), dtype=torch.float64)
    component = build_component(VALUES, "squared_error", settings)
    loss_T = component({"value_T": value[mask], "old_value_T": old[mask], "return_T": target[mask]})
    loss = (loss_T * weight_T.view(mask.shape)[mask]).sum()
    (gradient,) = torch.autograd.grad(loss, value)
    return {"loss": loss, "value_loss": loss, "grad_values": gradient}


def preference_run(
    case: Case,
    losses: Mapping[str, tuple[float, Mapping[str, Any]]],
    *,
    token_weights: float | None = None,
    eps: float = 0.0,
) -> Outputs:
    """Weighted sum of named preference losses, mean over pairs, and its two gradients.

    token_weights: what tokens beyond the shorter response of a pair count. eps: added to the number of pairs.
    """
    arrays = {side: case.array(f"{side}_policy_logp").requires_grad_() for side in ("chosen", "rejected")}
    masks = {side: case.array(f"{side}_mask") for side in arrays}
    given: dict[str, Tensor] = {}
    for side, policy in arrays.items():
        weight = masks[side]
        if token_weights is not None:
            shorter = torch.minimum(masks["chosen"].sum(1), masks["rejected"].sum(1))[:, None]
            beyond = masks[side].cumsum(1) > shorter
            weight = torch.where(beyond, token_weights * weight, weight)
        given[f"{side}_logp_P"] = (policy * weight).sum(1)
        given[f"{side}_length_P"] = masks[side].sum(1)
        reference = case.optional(f"{side}_ref_logp")
        if reference is not None:
            given[f"{side}_gain_P"] = ((policy - reference) * weight).sum(1)
    parts = [
        weight * build_component(PREFERENCES, name, settings)(given).sum() / (len(masks["chosen"]) + eps)
        for name, (weight, settings) in losses.items()
    ]
    loss = torch.stack(parts).sum()
    chosen, rejected = torch.autograd.grad(loss, list(arrays.values()))
    return {"loss": loss, "grad_chosen_policy_logp": chosen, "grad_rejected_policy_logp": rejected}


def kl_run(policy: Tensor, ref: Tensor, mask: Tensor, component: Mapping[str, Any]) -> Outputs:
    """KL of each token and the gradient of their sum, under the mask."""
    objective = build_objective({"preset": "grpo", "kl": dict(component)})
    policy = policy.clone().requires_grad_()
    given = {"policy_logp_T": policy, "ref_logp_T": ref, "log_ratio_T": policy * 0, "behavior_logp_T": ref}
    kl = objective.kl(given) * mask
    (gradient,) = torch.autograd.grad(kl.sum(), policy)
    return {"kl": kl, "grad_policy_logp": gradient}


def _segments(shape: torch.Size) -> Tensor:
    return torch.arange(shape[0]).repeat_interleave(shape[1])


def _advantages(case: Case, objective: Objective, setup: Setup) -> Advantages:
    mask = case.array("mask").bool()
    reward_N = case.array("rewards") if setup.reward_N is None else setup.reward_N
    return objective.advantages(
        reward_N,
        torch.tensor(case.inputs["group"]),
        segment_T=_segments(mask.shape),
        mask_T=mask.view(-1),
        state_T=_states(case, setup.states),
        old_logp_T=case.flat("old_logp"),
        ref_logp_T=case.flat("ref_logp"),
        value_T=_masked(case.flat(setup.values), mask.view(-1)),
        token_reward_T=case.flat("token_level_rewards") if case.knobs.get("dense_rewards") else None,
        baseline_N=case.optional("reward_baselines"),
        component_NK=setup.component_NK,
    )


def _masked(value_T: Tensor | None, mask_T: Tensor) -> Tensor | None:
    return None if value_T is None else value_T * mask_T


def _states(case: Case, states: str) -> Tensor:
    """The tokens that count as time: "chosen", "span" (to the last chosen one) or "response" (all that exist)."""
    mask = case.array("mask").bool()
    if states == "chosen":
        return mask.view(-1)
    columns = torch.arange(mask.shape[1])
    if states == "span":
        return (columns <= (columns * mask).max(1, keepdim=True).values).view(-1)
    return (columns < case.array("length")[:, None]).view(-1)


def _batch(case: Case, objective: Objective, setup: Setup, made: Advantages) -> Batch:
    mask_T = case.array("mask").bool().view(-1)
    segment_T = _segments(case.array("mask").shape)
    policy_T = case.array("policy_logp").reshape(-1)
    old_T = policy_T if setup.bypass else case.flat("old_logp")
    old_T = policy_T if old_T is None else old_T
    behavior_T = case.flat("behavior_logp")
    behavior_T = old_T if behavior_T is None else behavior_T
    kept_T = objective.loss_mask(
        segment_T,
        mask_T,
        truncated_N=case.optional("truncated"),
        old_logp_T=old_T,
        behavior_logp_T=behavior_T,
    )
    batch = Batch(
        segment_T=segment_T,
        mask_T=kept_T,
        sampled_mask_T=mask_T,
        old_logp_T=old_T,
        behavior_logp_T=behavior_T,
        ref_logp_T=case.flat("ref_logp"),
        advantage_T=made.advantage_T,
        weight_T=torch.zeros_like(old_T),
        penalty_weight_T=None,
        likelihood_weight_T=None,
    )
    return _weighted(batch, objective, len(case.inputs["rewards"]), torch.tensor(case.inputs["group"]))


def _weighted(batch: Batch, objective: Objective, rollouts: int, group_N: Tensor | None) -> Batch:
    given: dict[str, Any] = {"num_rollouts": rollouts, "group_N": group_N, "dtype": torch.float64}
    return dataclasses.replace(
        batch,
        weight_T=objective.token_weights(batch.segment_T, batch.mask_T, **given),
        penalty_weight_T=objective.penalty_token_weights(batch.segment_T, batch.mask_T, **given),
    )


def _slice(batch: Batch, inside_T: Tensor, objective: Objective, own_rows: int) -> Batch:
    """The tokens of one micro-batch; own_rows > 0: with weights of its own over so many rollouts."""
    arrays = {
        field.name: value[inside_T]
        for field in dataclasses.fields(batch)
        if (value := getattr(batch, field.name)) is not None
    }
    arrays["segment_T"] = arrays["segment_T"] - int(arrays["segment_T"].min())
    part = dataclasses.replace(batch, **arrays)
    return _weighted(part, objective, own_rows, None) if own_rows else part


def _mismatch_outputs(objective: Objective, weight: Tensor, mask: Tensor) -> Outputs:
    """The importance weights N x C that the loss was multiplied with; also N x 1 where a rollout has a single weight.

    Empty where other corrections are part of the factor, since projects do not report products.
    """
    weighing = [component for component in objective.correction if component.before_rejection]
    if [component.name in ("truncate", "mask_outside") for component in weighing] != [True]:
        return {}
    if weighing[0].settings["level"] == "token":
        return {"rollout_is_weights": weight, "importance_sampling_ratio": weight}
    per_rollout = weight.max(1, keepdim=True).values
    per_rollout[~mask.any(1)] = 1.0
    return {"rollout_is_weights": weight, "importance_sampling_ratio": per_rollout}
