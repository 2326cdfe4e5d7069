"""Our components run on a case: advantages, the policy's loss and its gradient.

Every number comes from `Objective`, which training uses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ansatz.certify.parity.cases import Case
from ansatz.objectives.advantage_rule import Advantages
from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.objectives.policy_loss import TokenTensors

Outputs = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a project feeds its loss, apart from its options.

    reward_N: shaped rewards; None means the rewards of the case. component_NK: reward components. dense: whether token
    rewards are used. values: name of the critic's array, which is 0 outside the mask. states: see `_states`.
    rows: rollouts per microbatch, in row order; None means all. own_weights: each microbatch is averaged by itself,
    then the microbatches are averaged. loss_scale: factor of the loss, for data parallelism. bypass: the policy
    replaces old log-probs that the project never computes.
    """

    reward_N: Tensor | None = None
    component_NK: Tensor | None = None
    dense: bool = False
    values: str = "values"
    states: str = "sampled"
    rows: int | None = None
    own_weights: bool = False
    loss_scale: float = 1.0
    bypass: bool = False


def advantage_run(case: Case, spec: Mapping[str, Any], setup: Setup = Setup()) -> Outputs:
    """Return advantages and returns only."""
    return _advantage_outputs(case, _advantages(case, build_objective(spec), setup))


def _advantage_outputs(case: Case, advantages: Advantages) -> Outputs:
    shape = case.array("mask").shape
    outputs: Outputs = {"advantages": advantages.advantage_T.view(shape), "advantage_N": advantages.advantage_N}
    return outputs if advantages.return_T is None else {**outputs, "returns": advantages.return_T.view(shape)}


def policy_run(case: Case, spec: Mapping[str, Any], setup: Setup = Setup()) -> Outputs:
    """Return advantages, loss and its gradient, microbatch by microbatch as the project does."""
    objective = build_objective(spec)
    shape = case.array("mask").shape
    policy = case.array("policy_logp").reshape(-1).requires_grad_()
    advantages = _advantages(case, objective, setup)
    batch = _batch(case, objective, setup, advantages)
    entropy_T = case.flat("entropy") if objective.needs_entropy else None
    losses: list[Tensor] = []
    mismatch_weights: list[Tensor] = []
    scaled: list[Tensor] = []
    for inside_T, microbatch in _microbatches(case, objective, setup, batch):
        entropy = None if entropy_T is None else entropy_T[inside_T]
        parts = objective.loss(microbatch, policy[inside_T], entropy)
        losses.append(parts.loss * setup.loss_scale)
        mismatch_weights.append(parts.mismatch_weight_T)
        scaled.append(microbatch.advantage_T * microbatch.weight_T)
    total = torch.stack(losses).sum()
    (gradient,) = torch.autograd.grad(total, policy)
    sampled_mask = batch.sampled_mask_T.view(shape)
    return {
        **_advantage_outputs(case, advantages),
        "scaled_advantages": torch.cat(scaled).view(shape),
        "modified_response_mask": batch.mask_T.view(shape).double(),
        "loss": total,
        "loss_per_micro_batch": torch.stack(losses),
        "grad_policy_logp": gradient.view(shape),
        **_mismatch_outputs(objective, torch.cat(mismatch_weights).view(shape), sampled_mask),
    }


def _advantages(case: Case, objective: Objective, setup: Setup) -> Advantages:
    mask = case.array("mask").bool()
    value_T = case.flat(setup.values)
    return objective.advantages(
        _rewards(case, setup),
        torch.tensor(case.inputs["group"]),
        segment_T=_segments(mask),
        mask_T=mask.view(-1),
        state_T=_states(case, setup.states),
        old_logp_T=case.flat("old_logp"),
        ref_logp_T=case.flat("ref_logp"),
        value_T=None if value_T is None else value_T * mask.view(-1),
        token_reward_T=case.flat("token_level_rewards") if setup.dense else None,
        baseline_N=case.optional("reward_baselines"),
        component_NK=setup.component_NK,
    )


def _rewards(case: Case, setup: Setup) -> Tensor:
    return case.array("rewards") if setup.reward_N is None else setup.reward_N


def _segments(mask: Tensor) -> Tensor:
    return torch.arange(mask.shape[0]).repeat_interleave(mask.shape[1])


def _states(case: Case, states: str) -> Tensor:
    """Return the tokens that count as time: "sampled", "span" (up to the last sampled one) or "response" (all that
    exist)."""
    mask = case.array("mask").bool()
    if states == "sampled":
        return mask.view(-1)
    columns = torch.arange(mask.shape[1])
    if states == "span":
        return (columns <= (columns * mask).max(1, keepdim=True).values).view(-1)
    return (columns < case.array("length")[:, None]).view(-1)


def _batch(case: Case, objective: Objective, setup: Setup, advantages: Advantages) -> TokenTensors:
    mask = case.array("mask").bool()
    mask_T, segment_T = mask.view(-1), _segments(mask)
    policy_T = case.array("policy_logp").reshape(-1)
    old_T = policy_T if setup.bypass else case.flat("old_logp")
    old_T = policy_T if old_T is None else old_T
    behavior_T = case.flat("behavior_logp")
    behavior_T = old_T if behavior_T is None else behavior_T
    kept_T = objective.loss_mask(
        segment_T, mask_T, truncated_N=case.optional("truncated"), old_logp_T=old_T, behavior_logp_T=behavior_T
    )
    batch = TokenTensors(
        segment_T=segment_T,
        mask_T=kept_T,
        sampled_mask_T=mask_T,
        old_logp_T=old_T,
        behavior_logp_T=behavior_T,
        ref_logp_T=case.flat("ref_logp"),
        advantage_T=advantages.advantage_T,
        weight_T=torch.zeros_like(old_T),
        penalty_weight_T=None,
        likelihood_weight_T=None,
    )
    return _weighted(batch, objective, _rewards(case, setup), torch.tensor(case.inputs["group"]))


def _weighted(
    batch: TokenTensors, objective: Objective, reward_N: Tensor, group_N: Tensor, share: float = 1.0
) -> TokenTensors:
    """Return the batch with the weights of a minibatch, times `share`."""
    inputs: dict[str, Any] = {"group_N": group_N, "dtype": torch.float64}
    weights: dict[str, Any] = {**objective.minibatch_weights(batch.segment_T, batch.mask_T, reward_N, **inputs)}
    return dataclasses.replace(
        batch, **{name: None if value_T is None else value_T * share for name, value_T in weights.items()}
    )


def _microbatches(
    case: Case, objective: Objective, setup: Setup, batch: TokenTensors
) -> Iterator[tuple[Tensor, TokenTensors]]:
    """Yield each microbatch with the mask of its tokens in the whole batch."""
    reward_N, group_N = _rewards(case, setup), torch.tensor(case.inputs["group"])
    rows = setup.rows or len(reward_N)
    starts = range(0, len(reward_N), rows)
    for start in starts:
        stop = min(start + rows, len(reward_N))
        inside_T = (batch.segment_T >= start) & (batch.segment_T < stop)
        arrays = {
            field.name: value[inside_T]
            for field in dataclasses.fields(batch)
            if (value := getattr(batch, field.name)) is not None
        }
        part = dataclasses.replace(batch, **{**arrays, "segment_T": arrays["segment_T"] - start})
        if setup.own_weights:
            part = _weighted(part, objective, reward_N[start:stop], group_N[start:stop], 1 / len(starts))
        yield inside_T, part


def _mismatch_outputs(objective: Objective, weight: Tensor, mask: Tensor) -> Outputs:
    """Return the importance weights N x C that the loss was multiplied with; also N x 1 where a rollout has a single
    weight.

    Empty where other corrections are part of the factor, since projects do not report products.
    """
    weighing = [component for component in objective.correction if component.sees_rejected]
    if [component.name in ("truncate", "mask_outside") for component in weighing] != [True]:
        return {}
    if weighing[0].settings["level"] == "token":
        return {"rollout_is_weights": weight, "importance_sampling_ratio": weight}
    per_rollout = weight.max(1, keepdim=True).values
    per_rollout[~mask.any(1)] = 1.0
    return {"rollout_is_weights": weight, "importance_sampling_ratio": per_rollout}
