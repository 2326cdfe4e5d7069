"""The score of a task of reasoning-gym for the final answer, by the task's own scorer."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence

from ansatz_verify.marks import extract
from ansatz_verify.pool import JobCrashed, JobTimeout, WorkerPool

from ansatz.config.fields import Seconds
from ansatz.errors import MissingExtraError, RewardError, install_command
from ansatz.rewards.base import RewardResult
from ansatz.rewards.gym_scorer import MEMORY_MB
from ansatz.types import Problem, Reason, Rollout, Verdict

_STAGE = "reasoning_gym"
_IMPORT_S = 60.0
"""Extra own time of a worker beyond the time of an answer: the package imports much when the first answer comes."""


def reasoning_gym(
    rollouts: Sequence[Rollout], *, correct_from: float = 1.0, wrong: float = 0.0, timeout_s: Seconds = 5.0
) -> list[RewardResult]:
    """Return the score, 0 to 1, of the answer in the last box or in <answer> tags; `wrong` without an answer, and for
    one that the scorer cannot read, or not in its time.

    correct_from: scores from here on count as correct in the verdict. Some tasks give partial credit.
    timeout_s: own time that a scorer has for an answer. It runs in another process, because some evaluate the answer.
    Only for problems of the source `reasoning_gym`. Raise MissingExtraError without the package.
    """
    if importlib.util.find_spec("reasoning_gym") is None:
        raise _make_missing_error("No module named 'reasoning_gym'")
    return [_grade(rollout, correct_from=correct_from, wrong=wrong, timeout_s=timeout_s) for rollout in rollouts]


def _grade(rollout: Rollout, *, correct_from: float, wrong: float, timeout_s: float) -> RewardResult:
    problem = rollout.prompt.problem
    if "task" not in problem.meta or "entry" not in problem.meta:
        raise RewardError(
            f"rewards.reasoning_gym: problem {problem.id!r} is from the source {problem.source!r}. It scores problems "
            "of the source reasoning_gym only."
        )
    answer = extract(rollout.said, mode="strict")
    found = Reason.NO_ANSWER if answer is None else _score(problem, answer, timeout_s)
    if isinstance(found, Reason):
        value, reason = wrong, found
    else:
        value, reason = found, Reason.EQUAL if found >= correct_from else Reason.DIFFERENT
    verdict = Verdict(correct=reason is Reason.EQUAL, reason=reason, extracted=answer, stage=_STAGE)
    return RewardResult(value=value, verdict=verdict)


def _score(problem: Problem, answer: str, timeout_s: float) -> float | Reason:
    """Return the score of an answer, or why there is none. Raise MissingExtraError if the package cannot be loaded."""
    job = {"task": problem.meta["task"], "entry": problem.meta["entry"], "answer": answer, "timeout_s": timeout_s}
    try:
        reply = _start_pool().call(job, timeout_s=timeout_s + _IMPORT_S)
    except JobTimeout:
        return Reason.TIMEOUT
    except JobCrashed:
        return Reason.CRASHED
    if "missing" in reply:
        raise _make_missing_error(reply["missing"])
    return float(reply["score"]) if "score" in reply else Reason(reply["reason"])


@functools.cache
def _start_pool() -> WorkerPool:
    """Return the pool of all graders of this process: one worker, which imports the package once."""
    return WorkerPool("ansatz.rewards.gym_scorer:score", timeout_s=_IMPORT_S, memory_mb=MEMORY_MB)


def _make_missing_error(why: str) -> MissingExtraError:
    return MissingExtraError(
        f"rewards.reasoning_gym needs the package reasoning-gym ({why}): {install_command('reasoning-gym')}"
    )
