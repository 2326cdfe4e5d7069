"""Group rules, averages and clipping on padded arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Inputs = dict[str, Tensor]
Options = dict[str, Any]


def groups(inputs: Inputs) -> list[list[int]]:
    labels = inputs["group"].tolist()
    return [[row for row, label in enumerate(labels) if label == group] for group in sorted(set(labels))]


def by_group(inputs: Inputs, rule: Callable[[Tensor], Tensor]) -> Tensor:
    """The rule applied to the rewards of each prompt."""
    out = torch.zeros_like(inputs["rewards"])
    for rows in groups(inputs):
        out[rows] = rule(inputs["rewards"][rows])
    return out


def zscore(eps: float, ddof: int, single: Callable[[Tensor], Tensor] | None = None) -> Callable[[Tensor], Tensor]:
    def rule(rewards: Tensor) -> Tensor:
        if len(rewards) == 1:
            return torch.zeros_like(rewards) if single is None else single(rewards)
        if rewards.max() == rewards.min():
            return torch.zeros_like(rewards)
        return (rewards - rewards.mean()) / (rewards.std(correction=ddof) + eps)

    return rule


def keep_single(rule: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda rewards: rewards if len(rewards) == 1 else rule(rewards)


def centered(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean()


def others_mean(rewards: Tensor) -> Tensor:
    if len(rewards) == 1:
        return torch.zeros_like(rewards)
    return rewards - (rewards.sum() - rewards) / (len(rewards) - 1)


def token_mean(loss: Tensor, mask: Tensor) -> Tensor:
    return (loss * mask).sum() / mask.sum()


def rollout_mean(loss: Tensor, mask: Tensor, *, eps: float = 0.0, nonempty: bool = False) -> Tensor:
    means = [(loss[row] * mask[row]).sum() / (mask[row].sum() + eps) for row in range(len(mask)) if mask[row].sum() > 0]
    return torch.stack(means).sum() / (len(means) if nonempty else len(mask))


def by_sign(good: Tensor, yes: float, no: float) -> Tensor:
    """yes or no, in float64: torch.where of two Python numbers has the default dtype."""
    return torch.full(good.shape, no, dtype=torch.float64).masked_fill(good, yes)


def k3(x: Tensor) -> Tensor:
    return (-x).exp() - 1 + x


def ppo_clip(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def rollout_sum(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum(1, keepdim=True)


def rollout_average(values: Tensor, mask: Tensor) -> Tensor:
    return rollout_sum(values, mask) / mask.sum(1, keepdim=True).clamp(min=1)
