"""The cosine length reward of "Demystifying Long Chain-of-Thought Reasoning". Lengths are in tokens."""

from __future__ import annotations

from collections.abc import Sequence

from ansatz.config.fields import Positive
from ansatz.rewards import length_formulas
from ansatz.rewards.base import RewardResult
from ansatz.types import Rollout, Verdict


def cosine_length(
    rollouts: Sequence[Rollout],
    *,
    max_tokens: Positive,
    correct_short: float = 2.0,
    correct_long: float = 1.0,
    wrong_short: float = -10.0,
    wrong_long: float = 0.0,
    exceeded: float = -10.0,
    verdicts: Sequence[Verdict],
) -> list[RewardResult]:
    """Return half a cosine from the short to the long value over lengths 0 to max_tokens (arXiv:2502.03373, sec. 4.2).

    Correct answers are better short. Wrong answers are better long, because more thought might find the answer.
    exceeded: the value from max_tokens on, for correct and wrong answers. The defaults are taken from the authors'
    experiments. This reward already includes accuracy, so give math_answer weight 0 next to it.
    """
    return [
        RewardResult(
            value=exceeded
            if rollout.num_tokens >= max_tokens
            else length_formulas.cosine_length(
                rollout.num_tokens,
                verdict.correct,
                max_tokens=max_tokens,
                correct_short=correct_short,
                correct_long=correct_long,
                wrong_short=wrong_short,
                wrong_long=wrong_long,
            )
        )
        for rollout, verdict in zip(rollouts, verdicts, strict=True)
    ]
