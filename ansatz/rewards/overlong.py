"""DAPO's soft overlong punishment: a linear penalty just below the longest allowed response. Lengths are in tokens."""

from __future__ import annotations

from collections.abc import Sequence

from ansatz.config.fields import Positive, Rate
from ansatz.errors import ConfigError
from ansatz.rewards.base import RewardResult
from ansatz.rewards.length_formulas import soft_overlong
from ansatz.types import Rollout


def overlong(
    rollouts: Sequence[Rollout], *, max_tokens: Positive, buffer: Positive, strength: Rate = 1.0
) -> list[RewardResult]:
    """Return 0 up to max_tokens - buffer, then linearly down to -strength at max_tokens and beyond (arXiv:2503.14476,
    eq. 13).

    max_tokens, buffer: the paper's L_max and L_cache (20480 and 4096 there), in tokens. The end token counts.
    strength: size of the largest penalty.
    """
    if buffer > max_tokens:
        raise ConfigError(f"rewards.overlong.buffer = {buffer}: expected at most max_tokens = {max_tokens}.")
    return [
        RewardResult(value=soft_overlong(rollout.num_tokens, max_tokens=max_tokens, buffer=buffer, strength=strength))
        for rollout in rollouts
    ]
