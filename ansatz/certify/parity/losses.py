"""The critic's loss, preference losses and KL estimators of a case, with their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ansatz.certify.parity.cases import Case
from ansatz.certify.parity.runs import Outputs
from ansatz.objectives.build import build_objective
from ansatz.objectives.components import build_component
from ansatz.objectives.preference import DIVERGENCES, PREFERENCES
from ansatz.objectives.surrogates import VALUES


def value_run(case: Case, weights: Any, settings: Mapping[str, Any], returns: Tensor | None = None) -> Outputs:
    """Return the critic's loss and its gradient. returns: N x C targets; None means the returns of the case."""
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
    losses: Sequence[tuple[float, str, Mapping[str, Any]]],
    *,
    divergence: Mapping[str, Any] | None = None,
    tail_weight: float | None = None,
    eps: float = 0.0,
) -> Outputs:
    """Return the weighted sum of preference losses (weight, name, settings), averaged over pairs, and its two
    gradients.

    divergence: of the scores, the reverse KL if None. tail_weight: weight of tokens beyond the shorter response of a
    pair. eps: added to the number of pairs.
    """
    arrays = {side: case.array(f"{side}_policy_logp").requires_grad_() for side in ("chosen", "rejected")}
    masks = {side: case.array(f"{side}_mask") for side in arrays}
    settings = dict(divergence or {"name": "reverse_kl"})
    score = build_component(DIVERGENCES, settings.pop("name"), settings)
    inputs: dict[str, Tensor] = {}
    for side, policy in arrays.items():
        weight = masks[side]
        inputs[f"{side}_likelihood_P"] = (policy * weight).sum(1)
        inputs[f"{side}_length_P"] = weight.sum(1)
        if tail_weight is not None:
            shorter = torch.minimum(masks["chosen"].sum(1), masks["rejected"].sum(1))[:, None]
            weight = torch.where(weight.cumsum(1) > shorter, tail_weight * weight, weight)
        inputs[f"{side}_logp_P"] = (policy * weight).sum(1)
        reference = case.optional(f"{side}_ref_logp")
        if reference is not None:
            gain_P = ((policy - reference) * weight).sum(1)
            inputs |= {f"{side}_gain_P": gain_P, f"{side}_score_P": score({"gain_P": gain_P})}
    parts = [
        weight * build_component(PREFERENCES, name, loss_settings)(inputs).sum() / (len(masks["chosen"]) + eps)
        for weight, name, loss_settings in losses
    ]
    loss = torch.stack(parts).sum()
    chosen, rejected = torch.autograd.grad(loss, list(arrays.values()))
    return {"loss": loss, "grad_chosen_policy_logp": chosen, "grad_rejected_policy_logp": rejected}


def kl_run(policy: Tensor, ref: Tensor, mask: Tensor, component: Mapping[str, Any]) -> Outputs:
    """Return the KL of each token and the gradient of their sum, at the tokens of the mask."""
    objective = build_objective({"preset": "grpo", "kl": dict(component)})
    policy = policy.clone().requires_grad_()
    inputs = {"policy_logp_T": policy, "ref_logp_T": ref, "log_ratio_T": policy * 0, "behavior_logp_T": ref}
    kl = objective.kl(inputs) * mask
    (gradient,) = torch.autograd.grad(kl.sum(), policy)
    return {"kl": kl, "grad_policy_logp": gradient}
