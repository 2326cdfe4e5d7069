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
    """Half a cosine from the short to the long value over lengths 0 to max_tokens (arXiv:2502.03373 sec. 4.2).

    Right answers: the shorter the better. Wrong answers: the longer the better, for more thought may find the answer.
    exceeded: the value from max_tokens on, right or wrong. The defaults are those of the authors' experiments. It holds
    accuracy already, so math_answer beside it has weight 0.
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
