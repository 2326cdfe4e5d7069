"""Graded responses of a model, as they stand in rollouts.jsonl, one a line.

    {"id": "gsm8k-test-0", "sample": 3, "level": "", "subject": "", "question": ..., "answer": "18", "response": ...,
     "tokens": 212, "finish": "stop", "verdicts": {"strict": {"correct": true, "reason": "equal", "extracted": "18"},
     "anchored": ..., "last_number": ...}}

`answer` and `response` are what `ansatz score` reads. Verdicts stand under the names of their readings (MODES), or
under "reward" where a recipe's rewards gave them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansatz.errors import DataError
from ansatz.rewards.base import Grader
from ansatz.rewards.math_answer.extract import Mode
from ansatz.rewards.math_answer.verify import verify
from ansatz.rewards.pool import WorkerPool
from ansatz.types import Finish, Reason, Rollout, Verdict

MODES: tuple[Mode, ...] = ("strict", "anchored", "last_number")
"""From the strictest reading of a response to the most lenient; see `verify`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response to a problem with one verdict or several, by name. tokens: its length, end token included."""

    id: str
    sample: int
    level: str
    subject: str
    question: str
    answer: str
    response: str
    tokens: int
    finish: Finish
    verdicts: Mapping[str, Verdict]

    @property
    def truncated(self) -> bool:
        """Whether it was cut off; a thought closed by force (Finish.BUDGET) is not."""
        return self.finish in (Finish.LENGTH, Finish.ABORT)

    def vote(self, mode: str) -> str | None:
        """What it votes for: the gold for every right answer, however written; else its own text without spaces."""
        verdict = self.verdicts[mode]
        if verdict.correct:
            return self.answer
        return None if verdict.extracted is None else f"wrong:{''.join(verdict.extracted.split())}"


Judge = Callable[[Sequence[Rollout]], list[Response]]
"""Grades all responses to one problem, in their order."""


def read_by_all_modes(pool: WorkerPool) -> Judge:
    """The judge that reads each response in each of MODES."""

    def judge(rollouts: Sequence[Rollout]) -> list[Response]:
        return [graded(one, pool=pool) for one in rollouts]

    return judge


def rewarded(grader: Grader) -> Judge:
    """The judge that asks a recipe's rewards; their verdict is called "reward"."""

    def judge(rollouts: Sequence[Rollout]) -> list[Response]:
        return [response_of(one.rollout, {"reward": one.score.verdict}) for one in grader.score(rollouts)]

    return judge


def graded(rollout: Rollout, *, pool: WorkerPool) -> Response:
    gold = rollout.prompt.problem.answer
    return response_of(rollout, _verdicts(gold, rollout.text, truncated=rollout.truncated, pool=pool))


def response_of(rollout: Rollout, verdicts: Mapping[str, Verdict]) -> Response:
    problem = rollout.prompt.problem
    return Response(
        id=problem.id,
        sample=rollout.sample,
        level=problem.level,
        subject=str(problem.meta.get("subject", "")),
        question=problem.question,
        answer=problem.answer,
        response=rollout.text,
        tokens=rollout.num_tokens,
        finish=rollout.finish,
        verdicts=verdicts,
    )


def graded_again(response: Response, *, pool: WorkerPool) -> Response:
    """The same text under the verifier as it is now."""
    verdicts = _verdicts(response.answer, response.response, truncated=response.truncated, pool=pool)
    return dataclasses.replace(response, verdicts=verdicts)


def _verdicts(gold: str, text: str, *, truncated: bool, pool: WorkerPool) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    for mode in MODES:
        verdict = verify(gold, text, mode=mode, pool=pool)
        if truncated and verdict.reason is Reason.NO_ANSWER:
            verdict = dataclasses.replace(verdict, reason=Reason.TRUNCATED)
        found[mode] = verdict
    return found


def to_row(response: Response) -> dict[str, Any]:
    """The response as a line of rollouts.jsonl; times are left out, so that equal evaluations are equal files."""
    verdicts = {
        mode: {"correct": one.correct, "reason": one.reason.value, "extracted": one.extracted}
        for mode, one in response.verdicts.items()
    }
    row = {field.name: getattr(response, field.name) for field in dataclasses.fields(response)}
    return {**row, "finish": response.finish.value, "verdicts": verdicts}


def from_row(row: Mapping[str, Any], *, where: str, needs: Sequence[str] = ()) -> Response:
    """The inverse of `to_row`. DataError, with `where` it stands, for another row, or one without a verdict `needs`."""
    try:
        verdicts = {
            name: Verdict(correct=one["correct"], reason=Reason(one["reason"]), extracted=one["extracted"])
            for name, one in row["verdicts"].items()
        }
        if not verdicts or not verdicts.keys() >= set(needs):
            raise ValueError(f"verdicts {', '.join(verdicts) or 'none'}, expected {', '.join(needs) or 'one or more'}")
        return Response(**{**row, "finish": Finish(row["finish"]), "verdicts": verdicts})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{where} holds a row that `ansatz eval` or `ansatz sample` did not write "
            f"({type(error).__name__}: {error}). Remove the file to sample anew."
        ) from error
