"""The reward that a response's environment gave it when it had ended (`environments.base.Environment.reward`)."""

from __future__ import annotations

from collections.abc import Sequence

from ansatz.rewards.base import RewardResult
from ansatz.types import Reason, Rollout, Verdict


def environment(rollouts: Sequence[Rollout], *, correct_from: float = 1.0, failed: float = 0.0) -> list[RewardResult]:
    """Return the environment's reward for the response: a number in [0, 1], or the value of a RewardResult.

    correct_from: numbers from here on count as correct in the verdict. A RewardResult can bring its own verdict.
    failed: the value if the environment gave no reward because of an error or a missed deadline. The verdict then says
    crashed or timeout, and `environment_reward.explanation` of the stored rollout names the cause.
    A response that the environment leaves to the recipe gets 0 from this reward, and the verdict of another one.
    """
    return [_result(rollout, correct_from=correct_from, failed=failed) for rollout in rollouts]


def _result(rollout: Rollout, *, correct_from: float, failed: float) -> RewardResult:
    given = rollout.environment_reward
    if given is None:
        return RewardResult(value=0.0, left_to_others=True)
    if given.failed:
        return RewardResult(value=failed, verdict=given.verdict)
    verdict = given.verdict
    if verdict is None:
        correct = given.value >= correct_from
        reason = Reason.EQUAL if correct else Reason.DIFFERENT
        verdict = Verdict(correct=correct, reason=reason, stage="environment")
    return RewardResult(value=given.value, verdict=verdict, steps=given.steps)
