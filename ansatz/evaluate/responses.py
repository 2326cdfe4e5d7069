"""Graded responses of an evaluation, as they stand in rollouts.jsonl, one a line.

    {"id": "gsm8k-test-0", "sample": 3, "level": "", "subject": "", "question": ..., "answer": "18", "response": ...,
     "tokens": 212, "finish": "stop", "verdicts": {"strict": {"correct": true, "reason": "equal", "extracted": "18"},
     "anchored": ..., "last_number": ...}}

`answer` and `response` are what `ansatz score` reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansatz.errors import DataError
from ansatz.rewards.math_answer.extract import Mode
from ansatz.rewards.math_answer.verify import verify
from ansatz.rewards.pool import WorkerPool
from ansatz.types import Finish, Reason, Rollout, Verdict

MODES: tuple[Mode, ...] = ("strict", "anchored", "last_number")
"""From the strictest reading of a response to the most lenient; see `verify`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response to a problem of a suite with a verdict for each of MODES. tokens: its length, end token included."""

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
        return self.finish is not Finish.STOP

    def vote(self, mode: str) -> str | None:
        """What it votes for: the gold for every right answer, however written; else its own text without spaces."""
        verdict = self.verdicts[mode]
        if verdict.correct:
            return self.answer
        return None if verdict.extracted is None else f"wrong:{''.join(verdict.extracted.split())}"


def graded(rollout: Rollout, *, pool: WorkerPool) -> Response:
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
        verdicts=_verdicts(problem.answer, rollout.text, truncated=rollout.truncated, pool=pool),
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


def from_row(row: Mapping[str, Any], *, where: str) -> Response:
    """The inverse of `to_row`. DataError, with `where` it stands, for another row."""
    try:
        verdicts = {
            mode: Verdict(
                correct=row["verdicts"][mode]["correct"],
                reason=Reason(row["verdicts"][mode]["reason"]),
                extracted=row["verdicts"][mode]["extracted"],
            )
            for mode in MODES
        }
        return Response(**{**row, "finish": Finish(row["finish"]), "verdicts": verdicts})
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{where} holds a row that `ansatz eval` did not write ({type(error).__name__}: {error}). "
            "Remove the file to sample anew."
        ) from error
