"""Small random batches for the tests of objectives: ragged rollouts with prompts, holes and one empty rollout."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import hypothesis
import torch
from torch import Tensor

from ansatz.objectives.objective import Objective

EXAMPLES = hypothesis.settings(max_examples=min(30, hypothesis.settings.default.max_examples), deadline=None)
"""For properties: at most 30 examples, fewer where a profile says so."""

FAR = 37.0  # what stands outside the mask: absurd for a log-prob, so a leak shows


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step's arrays and a TokenBatch once advantages and weights are in. Lists per rollout mirror the flat arrays."""

    reward_N: Tensor
    group_N: Tensor
    segment_T: Tensor
    mask_T: Tensor
    sampled_mask_T: Tensor
    policy_T: Tensor
    old_logp_T: Tensor
    behavior_logp_T: Tensor
    ref_logp_T: Tensor
    entropy_T: Tensor
    value_T: Tensor
    advantage_T: Tensor
    weight_T: Tensor
    penalty_weight_T: Tensor | None = None
    likelihood_weight_T: Tensor | None = None

    @property
    def rollouts(self) -> int:
        return len(self.reward_N)

    def lists(self, name: str) -> list[list[float]]:
        """The response tokens' entries of an array, rollout by rollout."""
        values = getattr(self, name)
        return [values[(self.segment_T == n) & self.mask_T].tolist() for n in range(self.rollouts)]


def make_step(
    seed: int = 0, *, groups: int = 3, size: int = 4, spread: float = 0.4, rewards: Sequence[float] | None = None
) -> Step:
    """Log-probs in float64; policy and others differ by `spread` nats a token. The last rollout has no response
    token."""
    rng = random.Random(seed)
    count = groups * size
    segment: list[int] = []
    mask: list[bool] = []
    for n in range(count):
        prompt, response = rng.randint(0, 2), rng.randint(1, 7)
        segment += [n] * (prompt + response)
        inside = [rng.random() < 0.85 for _ in range(response)]
        inside[rng.randrange(response)] = True
        mask += [False] * prompt + [hit and n != count - 1 for hit in inside]
    inside_T = torch.tensor(mask)

    def around(center: Tensor | float, width: float) -> Tensor:
        noise = torch.tensor([rng.gauss(0, width) for _ in segment], dtype=torch.float64)
        return torch.where(inside_T, center + noise, torch.full_like(noise, FAR))

    policy_T = around(-1.5, 0.5).clamp(max=FAR)
    policy_T = torch.where(inside_T, policy_T.clamp(max=-0.05), policy_T)
    values = rewards if rewards is not None else [rng.choice([0.0, 1.0, 0.5]) for _ in range(count)]
    return Step(
        reward_N=torch.tensor(values, dtype=torch.float64),
        group_N=torch.tensor([10 * (n // size) + 3 for n in range(count)]),
        segment_T=torch.tensor(segment),
        mask_T=inside_T,
        sampled_mask_T=inside_T,
        policy_T=policy_T,
        old_logp_T=around(policy_T, spread),
        behavior_logp_T=around(policy_T, spread),
        ref_logp_T=around(policy_T, spread),
        entropy_T=around(1.0, 0.3),
        value_T=around(0.3, 0.2),
        advantage_T=torch.zeros(len(segment), dtype=torch.float64),
        weight_T=torch.zeros(len(segment), dtype=torch.float64),
    )


def prepared(step: Step, objective: Objective, **given: Any) -> Step:
    """The step with the objective's advantages and weights."""
    arrays = {name: getattr(step, name) for name in ("segment_T", "mask_T", "old_logp_T", "ref_logp_T", "value_T")}
    result = objective.advantages(step.reward_N, step.group_N, **arrays, **given)
    of_what = {"group_N": step.group_N, "dtype": torch.float64}
    return replace(
        step,
        advantage_T=result.advantage_T,
        **objective.minibatch_weights(step.segment_T, step.mask_T, step.reward_N, **of_what),
    )


def part(step: Step, first: int, last: int) -> Step:
    """The slice of rollouts first..last-1, renumbered."""
    inside = (step.segment_T >= first) & (step.segment_T < last)
    arrays = {
        name: value[inside]
        for name, value in vars(step).items()
        if name.endswith("_T") and isinstance(value, Tensor) and name != "segment_T"
    }
    return replace(
        step,
        **arrays,
        segment_T=step.segment_T[inside] - first,
        reward_N=step.reward_N[first:last],
        group_N=step.group_N[first:last],
    )


def loss_and_gradient(objective: Objective, step: Step, **coefs: float) -> tuple[float, Tensor]:
    """The loss of a prepared step and its gradient by the policy's log-probs."""
    policy_T = step.policy_T.clone().requires_grad_()
    loss = objective.loss(step, policy_T, step.entropy_T, **coefs).loss
    if not loss.requires_grad:
        return loss.item(), torch.zeros_like(policy_T)
    (gradient_T,) = torch.autograd.grad(loss, policy_T)
    return loss.item(), gradient_T


def extras(step: Step) -> dict[str, Any]:
    """What some presets ask for beyond rewards: greedy baselines, components, step rewards at the last chosen
    tokens."""
    ends_T = torch.zeros_like(step.mask_T)
    for n in range(step.rollouts):
        inside = ((step.segment_T == n) & step.mask_T).nonzero().flatten()
        ends_T[inside[len(inside) // 2 :: 2]] = True
    return {
        "baseline_N": step.reward_N.flip(0),
        "component_NK": torch.stack([step.reward_N, 1 - step.reward_N.roll(1)], 1),
        "step_end_T": ends_T,
        "step_reward_T": ends_T * torch.linspace(-1, 1, len(ends_T), dtype=torch.float64),
    }
