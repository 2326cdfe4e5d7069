"""Advantages: how much better than expected a rollout, or a token, turned out.

Axes: N rollouts, T response tokens, K reward components. A piece that takes `segment_T` gives one number a token, any other
one number a rollout, which every token of it takes. `group_N` holds the prompt of each rollout, any integers.
Scalar pieces are shift-invariant in the reward and give 0, never NaN, on a group of equal rewards.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.pieces import Function, formula
from ansatz.registry import Registry

ADVANTAGES: Registry[Function] = Registry("advantage")


@ADVANTAGES.register("group_mean", "dr_grpo", "centered")
@formula("A = r - mean of the prompt's rewards")
def group_mean(reward_N: Tensor, group_N: Tensor, *, single: str = "zero") -> Tensor:
    """r - mean(group): unbiased up to the factor (n-1)/n (Dr. GRPO, arXiv:2503.20783).

    single: what a group of one gets, "zero" or "keep" (its reward as it is).
    """
    index_N, groups = _groups(group_N)
    return _keep_singles(segments.centered(reward_N, index_N, groups), reward_N, index_N, groups, single)


@ADVANTAGES.register("group_zscore", "grpo", "group_norm")
@formula("A = (r - mean) / (std + {eps}), over the rewards of the {std_over}, std with ddof {ddof}")
def group_zscore(
    reward_N: Tensor,
    group_N: Tensor,
    *,
    ddof: int = 1,
    eps: float = 1e-4,
    std_over: str = "group",
    single: str = "zero",
) -> Tensor:
    """(r - mean(group)) / (std + eps) (GRPO, arXiv:2402.03300 eq. 4.1; the paper fixes neither ddof nor eps).

    std_over: "group", or "batch" to divide every group by one std of all rewards. Biased: easy and hard prompts weigh more.
    """
    index_N, groups = _groups(group_N)
    centered_N = segments.centered(reward_N, index_N, groups)
    if std_over == "batch":
        whole_N = torch.zeros_like(index_N)
        std_N = segments.deviation(segments.centered(reward_N, whole_N, 1), whole_N, 1, ddof=ddof)[whole_N]
    else:
        std_N = segments.deviation(centered_N, index_N, groups, ddof=ddof)[index_N]
    return _keep_singles(centered_N / (std_N + eps), reward_N / (1 + eps), index_N, groups, single)


@ADVANTAGES.register("leave_one_out", "rloo")
@formula("A = r - mean of the other rewards of the prompt")
def leave_one_out(reward_N: Tensor, group_N: Tensor, *, single: str = "zero") -> Tensor:
    """r - mean(others of the group) = n/(n-1) (r - mean): unbiased (RLOO, arXiv:2402.14740 eq. 3)."""
    index_N, groups = _groups(group_N)
    size_N = segments.count(index_N, groups)[index_N]
    advantage_N = segments.centered(reward_N, index_N, groups) * size_N / (size_N - 1).clamp(min=1)
    return _keep_singles(advantage_N, reward_N, index_N, groups, single)


@ADVANTAGES.register("batch_zscore")
@formula("A = (r - mean of the batch) / (std of the batch + {eps}), std with ddof {ddof}")
def batch_zscore(reward_N: Tensor, *, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """The reward whitened over all rollouts of the step; works with one rollout a prompt (REINFORCE++, arXiv:2501.03262)."""
    whole_N = torch.zeros_like(reward_N, dtype=torch.long)
    centered_N = segments.centered(reward_N, whole_N, 1)
    return centered_N / (segments.deviation(centered_N, whole_N, 1, ddof=ddof) + eps)


@ADVANTAGES.register("reward", "raw", "none")
@formula("A = r")
def reward(reward_N: Tensor) -> Tensor:
    """The reward itself, no baseline (REINFORCE, Williams 1992)."""
    return reward_N.clone()


def _groups(group_N: Tensor) -> tuple[Tensor, int]:
    """Groups renumbered 0..G-1, and G."""
    unique: tuple[Tensor, Tensor] = torch.unique(group_N, return_inverse=True)  # pyright: ignore
    return unique[1], len(unique[0])


def _keep_singles(advantage_N: Tensor, reward_N: Tensor, index_N: Tensor, groups: int, single: str) -> Tensor:
    if single != "keep":
        return advantage_N
    return torch.where(segments.count(index_N, groups)[index_N] == 1, reward_N, advantage_N)
