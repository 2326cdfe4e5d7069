"""Kimi k1.5's length reward: among the responses to one prompt, shorter ones get more. Lengths are in tokens."""

from __future__ import annotations

from collections.abc import Sequence

from ansatz.config.fields import Count
from ansatz.rewards.base import RewardResult
from ansatz.rewards.length_formulas import group_length, ramp
from ansatz.types import Rollout, Verdict


def kimi_length(
    rollouts: Sequence[Rollout], *, from_step: Count, ramp_steps: Count = 0, step: int, verdicts: Sequence[Verdict]
) -> list[RewardResult]:
    """Return lambda = 0.5 - (length - min) / (max - min) for a correct response, min(0, lambda) for a wrong one.

    arXiv:2501.12599, sec. 2.3.3. Values in [-0.5, 0.5]; 0 for all if all are equally long.
    from_step: 0 for all before this training step. The paper warms the reward up late, because it slows early learning,
    and does not say when. ramp_steps: steps of linear growth to its full size, which it reaches at from_step +
    ramp_steps. With 4, it is a fifth of the full size at from_step, and all of it four steps later; 0: at once.
    """
    strength = ramp(step, from_step=from_step, ramp_steps=ramp_steps)
    if not rollouts or strength == 0:
        return [RewardResult(value=0.0) for _ in rollouts]
    lengths = [rollout.num_tokens for rollout in rollouts]
    rewards = group_length(lengths, [verdict.correct for verdict in verdicts])
    return [RewardResult(value=strength * reward) for reward in rewards]
