"""L1's reward for a requested length, without its accuracy part. Lengths are in tokens."""

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
    """Return L1's reward minus accuracy (1 or 0), so that math_answer + target_length is L1 (arXiv:2503.04697, eq. 1
    and 2).

    mode: exact gives -alpha |target - length|; max gives -(1 - clip(alpha (target - length) + delta, 0, 1)) for a
    correct response, else 0. target_tokens: used if the problem has no meta["target_tokens"]; raise DataError without
    either. The prompt must state the target, or the policy cannot know it. alpha: reward per token.
    """
    results: list[RewardResult] = []
    for rollout, verdict in zip(rollouts, verdicts, strict=True):
        length, target = rollout.num_tokens, _target(rollout.prompt.problem, target_tokens)
        if mode == "exact":
            whole = lcpo_exact(length, verdict.correct, target=target, alpha=alpha)
        else:
            whole = lcpo_max(length, verdict.correct, target=target, alpha=alpha, delta=delta)
        results.append(RewardResult(value=whole - float(verdict.correct)))
    return results


def _target(problem: Problem, default: int | None) -> int:
    target = problem.meta.get(META_KEY, default)
    if isinstance(target, bool) or not isinstance(target, int) or target < 1:
        raise DataError(
            f"problem {problem.id!r}: meta[{META_KEY!r}] is {target!r}, expected a number of tokens. Give it in the "
            "data, or set rewards.target_length.target_tokens."
        )
    return target
