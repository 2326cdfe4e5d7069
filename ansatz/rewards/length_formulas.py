"""Formulas of length rewards: pure functions of token counts and correctness. Lengths are in tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence


def soft_overlong(length: int, *, max_tokens: int, buffer: int, strength: float = 1.0) -> float:
    """Return 0 up to max_tokens - buffer, then linearly down to -strength at max_tokens and beyond.

    DAPO, arXiv:2503.14476, eq. 13.
    """
    excess = length - (max_tokens - buffer)
    return -strength * min(max(excess / buffer, 0.0), 1.0)


def group_length(lengths: Sequence[int], correct: Sequence[bool]) -> list[float]:
    """Return Kimi k1.5's length reward over the responses to one prompt, in [-0.5, 0.5] (arXiv:2501.12599, sec. 2.3.3).

    0.5 - (length - min) / (max - min) for a correct response, at most 0 for a wrong one. 0 for all if all are equally
    long.
    """
    shortest, longest = min(lengths), max(lengths)
    if shortest == longest:
        return [0.0] * len(lengths)
    rewards = [0.5 - (length - shortest) / (longest - shortest) for length in lengths]
    return [reward if is_correct else min(reward, 0.0) for reward, is_correct in zip(rewards, correct, strict=True)]


def ramp(step: int, *, from_step: int, ramp_steps: int) -> float:
    """Return the strength of a reward that is switched on late: 0 before from_step, 1 from from_step + ramp_steps on.

    In between it grows by 1 / (ramp_steps + 1) per step, starting with that at from_step. ramp_steps 0: a switch.
    """
    return min(max((step - from_step + 1) / (ramp_steps + 1), 0.0), 1.0)


def lcpo_exact(length: int, correct: bool, *, target: int, alpha: float = 3e-4) -> float:
    """Return correctness minus alpha x the distance from the requested length (L1, arXiv:2503.04697, eq. 1)."""
    return float(correct) - alpha * abs(target - length)


def lcpo_max(length: int, correct: bool, *, target: int, alpha: float = 3e-4, delta: float = 0.5) -> float:
    """Return correctness x clip(alpha (target - length) + delta, 0, 1): a soft limit on length (L1, arXiv:2503.04697,
    eq. 2).

    The authors' code has half the slope: its clip(alpha (target - length), -1, 1) / 2 + 1/2 is this with alpha / 2.
    """
    return float(correct) * min(max(alpha * (target - length) + delta, 0.0), 1.0)


def cosine_length(
    length: int,
    correct: bool,
    *,
    max_tokens: int,
    correct_short: float = 1.0,
    correct_long: float = 0.5,
    wrong_short: float = -1.0,
    wrong_long: float = -0.5,
) -> float:
    """Return half a cosine from the reward at length 0 to the reward at length max_tokens (arXiv:2502.03373, sec. 4.2).

    Beyond max_tokens the cosine turns back. With the defaults, correct answers are better short, and wrong answers are
    better long (more thinking).
    """
    start, end = (correct_short, correct_long) if correct else (wrong_short, wrong_long)
    return end + 0.5 * (start - end) * (1 + math.cos(math.pi * length / max_tokens))


def relative_length(lengths: Sequence[float], rewards: Sequence[float], *, weight: float) -> list[float]:
    """Return weight x mean reward x length / longest, to subtract from the rewards of a prompt. 0 if all are wrong."""
    longest = max(lengths)
    if longest <= 0:
        return [0.0] * len(lengths)
    scale = weight * sum(rewards) / len(rewards) / longest
    return [scale * length for length in lengths]
