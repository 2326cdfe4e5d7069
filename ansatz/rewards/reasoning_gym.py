"""The score of a task of reasoning-gym for the final answer, by the task's own scorer."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

from ansatz.errors import MissingExtraError, RewardError
from ansatz.rewards.base import RewardResult
from ansatz.rewards.math_answer.extract import extract
from ansatz.types import Reason, Rollout, Verdict

CAN_HANG = True  # scorers are code of another project


def reasoning_gym(rollouts: Sequence[Rollout], *, correct_from: float = 1.0, wrong: float = 0.0) -> list[RewardResult]:
    """Return the score, 0 to 1, of the answer in the last box or in <answer> tags; `wrong` without an answer, and for
    one that the scorer cannot read.

    correct_from: scores from here on count as correct in the verdict. Some tasks give partial credit.
    Only for problems of the source `reasoning_gym`. Raise MissingExtraError without the package.
    """
    try:
        score_of = importlib.import_module("reasoning_gym").get_score_answer_fn
    except ImportError as error:
        raise MissingExtraError(
            f"rewards.reasoning_gym needs the package reasoning-gym ({error}): pip install 'ansatz-rl[reasoning-gym]'."
        ) from error
    return [_grade(score_of, rollout, correct_from=correct_from, wrong=wrong) for rollout in rollouts]


def _grade(score_of: Any, rollout: Rollout, *, correct_from: float, wrong: float) -> RewardResult:
    problem = rollout.prompt.problem
    if "task" not in problem.meta or "entry" not in problem.meta:
        raise RewardError(
            f"rewards.reasoning_gym: problem {problem.id!r} is from the source {problem.source!r}. It scores problems "
            "of the source reasoning_gym only."
        )
    answer = extract(rollout.said, mode="strict")
    if answer is None:
        return RewardResult(value=wrong, verdict=Verdict(correct=False, reason=Reason.NO_ANSWER, stage="reasoning_gym"))
    try:
        score = float(score_of(problem.meta["task"])(answer=answer, entry=json.loads(problem.meta["entry"])))
    except Exception:  # some scorers raise anything for an answer that they cannot read
        verdict = Verdict(correct=False, reason=Reason.UNPARSED, extracted=answer, stage="reasoning_gym")
        return RewardResult(value=wrong, verdict=verdict)
    reason = Reason.EQUAL if score >= correct_from else Reason.DIFFERENT
    verdict = Verdict(correct=score >= correct_from, reason=reason, extracted=answer, stage="reasoning_gym")
    return RewardResult(value=score, verdict=verdict)
