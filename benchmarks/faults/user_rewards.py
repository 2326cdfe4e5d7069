"""Rewards of the kinds of run: values with a signal at every step, and graders that take time, or overflow."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ansatz.rewards import sandbox
from ansatz.rewards.base import RewardResult
from ansatz.types import Rollout


def odd_sums(rollouts: Sequence[Rollout], *, seconds: float = 0.01) -> list[RewardResult]:
    """1 for a response whose tokens have an odd sum. Grading takes a while, so that faults can fall into it."""
    time.sleep(seconds)
    return [RewardResult(value=float(sum(rollout.token_ids) % 2)) for rollout in rollouts]


def computed(rollouts: Sequence[Rollout]) -> list[RewardResult]:
    """The values of `odd_sums`, computed by one program in the sandbox."""
    sums = [sum(rollout.token_ids) for rollout in rollouts]
    run = sandbox.run(f"print(*(each % 2 for each in {sums}))", limits=sandbox.SandboxLimits(timeout_s=60))
    return [RewardResult(value=float(value)) for value in run.stdout.split()]


def overflows_at(rollouts: Sequence[Rollout], *, step: int, at: Sequence[int]) -> list[RewardResult]:
    """Values whose advantages overflow at some steps, so that these updates are not finite."""
    if step in at:
        return [RewardResult(value=3e38 * (-1) ** rollout.sample) for rollout in rollouts]
    return odd_sums(rollouts)
