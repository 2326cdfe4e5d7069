"""L1's reward for a length that was asked for, as what it adds to accuracy. Lengths are in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ansatz.config.fields import Positive, Rate
from ansatz.errors import DataError
from ansatz.rewards.base import RewardResult
from ansatz.rewards.length_formulas import lcpo_exact, lcpo_max
from ansatz.types import Problem, Rollout, Verdict

META_KEY = "target_tokens"


def target_length(
    rollouts: Sequence[Rollout],
    *,
    mode: Literal["exact", "max"] = "exact",
    target_tokens: Positive | None = None,
    alpha: Rate = 3e-4,
    delta: Rate = 0.5,
    verdicts: Sequence[Verdict],
) -> list[RewardResult]:
    """L1's reward less the 1/0 of accuracy, so that math_answer + target_length is L1 (arXiv:2503.04697 eq. 1 and 2).

    exact: -alpha |target - length|. max: -(1 - clip(alpha (target - length) + delta, 0, 1)) where correct, else 0.
    The target is the problem's meta["target_tokens"], else the setting; DataError where there is neither. The prompt
    must say it, or the policy cannot know. alpha: reward per token.
    """
    judgements: list[RewardResult] = []
    for rollout, verdict in zip(rollouts, verdicts, strict=True):
        length, target = rollout.num_tokens, _target(rollout.prompt.problem, target_tokens)
        if mode == "exact":
            whole = lcpo_exact(length, verdict.correct, target=target, alpha=alpha)
        else:
            whole = lcpo_max(length, verdict.correct, target=target, alpha=alpha, delta=delta)
        judgements.append(RewardResult(value=whole - float(verdict.correct)))
    return judgements


def _target(problem: Problem, default: int | None) -> int:
    target = problem.meta.get(META_KEY, default)
    if isinstance(target, bool) or not isinstance(target, int) or target < 1:
        raise DataError(
            f"problem {problem.id!r}: meta[{META_KEY!r}] is {target!r}, expected a number of tokens. Give it in the "
            "data, or set rewards.target_length.target_tokens."
        )
    return target
