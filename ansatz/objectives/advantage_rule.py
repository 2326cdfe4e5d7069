"""From rewards to one advantage per token.

Axes: N rollouts, T tokens of the step (prompts and responses).

The order is: a KL in the reward, reward whitening, the component, clipping, whitening over rollouts, a KL in the return
or the advantage, whitening over tokens. A component that gives one number per token leaves no number per rollout to
clip, so the rewards are clipped instead, before everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.components import Component
from ansatz.registry import check_result

if TYPE_CHECKING:
    from ansatz.objectives.objective import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantages:
    """advantage_T is 0 outside the mask. advantage_N is None if the component gives one number per token. return_T, the
    critic's target, is None without a critic. kl_T, the KL of each token without its coefficient, is None unless the KL
    acts on rewards or advantages."""

    advantage_T: Tensor
    advantage_N: Tensor | None
    return_T: Tensor | None
    kl_T: Tensor | None


def compute_advantages(
    objective: Objective,
    reward_N: Tensor,
    group_N: Tensor,
    *,
    segment_T: Tensor,
    mask_T: Tensor,
    state_T: Tensor,
    extra: Mapping[str, Tensor | None],
) -> Advantages:
    """Compute `Objective.advantages`. Components see the tokens of state_T; the result covers only mask_T."""
    state_segment_T = segment_T[state_T]
    inputs: dict[str, Any] = {
        **masked(extra, state_T),
        "reward_N": reward_N,
        "group_N": group_N,
        "segment_T": state_segment_T,
        "length_N": segments.count(segment_T[mask_T], len(reward_N)),
    }
    kept_T = mask_T[state_T]  # the states that are also in the mask
    observed_kl_T = _kl(objective, inputs) * kept_T
    kl_T = objective.kl_coef * observed_kl_T
    if inputs.get("token_reward_T") is None:
        if objective.advantage.per_token:
            reward_N = _clipped(reward_N, objective.advantage_clip)
        inputs["token_reward_T"] = segments.last_of_segment(state_segment_T) * reward_N[state_segment_T]
    else:  # dense rewards, which are not clipped: a rollout's reward is their sum
        reward_N = segments.total(inputs["token_reward_T"], state_segment_T, len(reward_N))
    inputs["reward_N"] = reward_N
    if objective.kl_in == "reward":
        inputs["token_reward_T"] = inputs["token_reward_T"] - kl_T
        inputs["reward_N"] = reward_N - segments.total(kl_T, state_segment_T, len(reward_N))
    if objective.reward_whiten is not None:
        inputs["token_reward_T"] = objective.reward_whiten(inputs)

    advantage_N: Tensor | None = None
    if objective.advantage.per_token:
        advantage_T = _advantage(objective.advantage, inputs, len(state_segment_T), "token")
    else:
        advantage_N = _advantage(objective.advantage, inputs, len(reward_N), "rollout")
        advantage_N = _whitened("advantage_N", _clipped(advantage_N, objective.advantage_clip), objective.whiten)
        advantage_T = advantage_N[state_segment_T]
    return_T = advantage_T + inputs["value_T"] if objective.needs_values else None
    if objective.kl_in == "return":
        advantage_T = advantage_T - segments.discounted_sum(kl_T, state_segment_T, 1.0)
    elif objective.kl_in == "advantage":
        advantage_T = advantage_T - kl_T
    return Advantages(
        advantage_T=scattered(_whitened("advantage_T", advantage_T[kept_T], objective.whiten), mask_T),
        advantage_N=advantage_N,
        return_T=None if return_T is None else scattered(return_T[kept_T], mask_T),
        kl_T=scattered(observed_kl_T[kept_T], mask_T) if objective.advantages_need_old_logp else None,
    )


def _advantage(component: Component, inputs: Mapping[str, Any], count: int, of: str) -> Tensor:
    """Return the component's result. Raise UserCodeError if a user's component gives anything else than numbers."""
    value: Any = component(inputs)

    def is_right() -> bool:
        return isinstance(value, Tensor) and value.shape == (count,) and bool(torch.isfinite(value).all())

    expected = f"a tensor of {count} finite numbers, one per {of}"
    check_result(component.function, value, is_right=is_right, expected=expected)
    return value


def _kl(objective: Objective, inputs: Mapping[str, Any]) -> Tensor:
    """Return the KL of the policy before the update at each token; 0 if the KL is in the loss or its coefficient is
    0."""
    if not objective.advantages_need_old_logp:
        return torch.zeros_like(inputs["segment_T"], dtype=inputs["reward_N"].dtype)
    old_T = inputs.get("old_logp_T")
    log_ratio_T = None if old_T is None else torch.zeros_like(old_T)  # of the old policy to itself
    old_inputs = {"behavior_logp_T": old_T, **inputs, "policy_logp_T": old_T, "log_ratio_T": log_ratio_T}
    return objective.kl(old_inputs).detach()


def _clipped(value_N: Tensor, bounds: tuple[float, float] | None) -> Tensor:
    return value_N if bounds is None else value_N.clamp(*bounds)


def _whitened(axis: str, advantage: Tensor, component: Component | None) -> Tensor:
    """Whiten the advantages if the component takes them on this axis, which is the name of its input."""
    return advantage if component is None or axis not in component.inputs else component({axis: advantage})


def scattered(value_T: Tensor, mask_T: Tensor) -> Tensor:
    """Put values at the tokens of the mask back on the whole token axis, shape T; 0 elsewhere."""
    return value_T.new_zeros(mask_T.shape).masked_scatter(mask_T, value_T)


def masked(arrays: Mapping[str, Tensor | None], mask_T: Tensor) -> dict[str, Any]:
    """Restrict arrays on the token axis to the tokens of the mask. Other arrays stay as they are."""
    return {key: at(value, mask_T) if key.endswith("_T") else value for key, value in arrays.items()}


def at(value_T: Tensor | None, mask_T: Tensor) -> Tensor | None:
    """Return the values at the tokens of the mask, None for an input that there is not."""
    return None if value_T is None else value_T[mask_T]
