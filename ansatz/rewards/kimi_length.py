"""Kimi k1.5's length reward: among the responses to one prompt, shorter ones get more. Lengths are in tokens."""

from __future__ import annotations

from collections.abc import Sequence

from ansatz.config.fields import Count
from ansatz.rewards.base import RewardResult
from ansatz.rewards.length_formulas import group_length
from ansatz.types import Rollout, Verdict


def kimi_length(
    rollouts: Sequence[Rollout], *, from_step: Count, step: int, verdicts: Sequence[Verdict]
) -> list[RewardResult]:
    """lambda = 0.5 - (length - min) / (max - min) for a correct response, min(0, lambda) for a wrong one.

    arXiv:2501.12599, sec. 2.3.3. Values in [-0.5, 0.5]; 0 for all if all are equally long.
    from_step: 0 for all before this training step. The paper switches the reward on late, because it slows early
    learning, and does not say when.
    """
    if not rollouts or step < from_step:
        return [RewardResult(value=0.0) for _ in rollouts]
    lengths = [rollout.num_tokens for rollout in rollouts]
    return [RewardResult(value=value) for value in group_length(lengths, [verdict.correct for verdict in verdicts])]
