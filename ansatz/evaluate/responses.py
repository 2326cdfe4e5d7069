"""Graded responses of a model, as rollouts.jsonl holds them, one per line.

    {"id": "gsm8k-test-0", "sample": 3, "level": "", "subject": "", "question": ..., "answer": "18", "response": ...,
     "tokens": 212, "finish": "stop", "verdicts": {"strict": {"correct": true, "reason": "equal", "extracted": "18"},
     "anchored": ..., "last_number": ...}}

`ansatz score` reads the fields `answer`, a list if there are several gold answers, and `response`. Verdicts are stored
by mode (see MODES), or under "reward" if a recipe's rewards gave them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import isfinite
from typing import Any, cast

from ansatz_verify.grade import verify
from ansatz_verify.marks import Mode
from ansatz_verify.pool import WorkerPool

from ansatz.errors import DataError
from ansatz.evaluate.estimators import vote
from ansatz.prompts.answer_only import guess_of
from ansatz.rewards.base import Grader
from ansatz.special_tokens import end_of_turn, special_tokens
from ansatz.types import ORIGIN, TEMPLATE, Finish, Problem, Reason, Rollout, Verdict, gold_value, joined_golds

MODES: tuple[Mode, ...] = ("strict", "anchored", "last_number")
"""How an answer is found in a response, from the strictest mode to the most lenient (see `verify`)."""
KEPT = ("tools", "chat_template_kwargs", TEMPLATE, ORIGIN)
"""The entries of a problem's `meta` that its responses keep: without them, they are taught after another prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response to a problem with its verdicts by mode. tokens: its length, end token included. earlier_turns: those
    before the question (`Problem.earlier_turns`).

    transcript: if an environment has answered, the response with its special tokens, as it can be taught, without its
    end token; otherwise empty. observations: [start, end] of each answer in the transcript, in characters. said: the
    response without these answers, which is graded; empty if it is the response. token_ids: of a response that the
    policy sampled alone. score: by a reward model, if one scored it: the logarithm of its weight in a vote. meta: the
    problem's entries of KEPT.
    """

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
    earlier_turns: Sequence[Mapping[str, str]] = ()
    transcript: str = ""
    observations: Sequence[Sequence[int]] = ()
    said: str = ""
    token_ids: Sequence[int] = ()
    score: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def truncated(self) -> bool:
        """Return whether the response was cut off. A thought that its budget closed (Finish.BUDGET) was not."""
        return self.finish in (Finish.LENGTH, Finish.ABORT)

    def vote(self, mode: str) -> str | None:
        """Return the answer that the response votes for in maj@k."""
        return vote(self.verdicts[mode], gold=self.answer)


ResponseGrader = Callable[[Sequence[Rollout]], list[Response]]
"""Grades all rollouts of one problem, in their order."""


def all_modes_grader(pool: WorkerPool) -> ResponseGrader:
    """Grade each response in every one of MODES."""
    return lambda rollouts: [
        response_of(each, _verdicts(each.prompt.problem.answer, each.said, truncated=each.truncated, pool=pool))
        for each in rollouts
    ]


def reward_grader(grader: Grader) -> ResponseGrader:
    """Grade by a recipe's rewards. Their verdict is stored under "reward"."""
    return lambda rollouts: [
        response_of(scored.rollout, {"reward": scored.score.verdict}) for scored in grader.score(rollouts)
    ]


def with_scores(grade: ResponseGrader, score: Callable[[Sequence[Rollout]], list[float]]) -> ResponseGrader:
    """Return the same grader, whose responses have the scores of a reward model."""
    return lambda rollouts: [
        dataclasses.replace(response, score=value)
        for response, value in zip(grade(rollouts), score(rollouts), strict=True)
    ]


def with_transcripts(grade: ResponseGrader, tokenizer: Any) -> ResponseGrader:
    """Return the same grader, but its responses also record the parts of them that come from an environment."""
    ends = {tokenizer.eos_token_id, end_of_turn(tokenizer)}
    return lambda rollouts: [
        dataclasses.replace(response, **_transcript(rollout, tokenizer, ends))
        for rollout, response in zip(rollouts, grade(rollouts), strict=True)
    ]


def _transcript(rollout: Rollout, tokenizer: Any, ends: Collection[int | None]) -> dict[str, Any]:
    """Return the fields `transcript` and `observations`; none if the policy sampled the whole response."""
    tokens = list(zip(rollout.token_ids, rollout.sampled_mask, strict=False))
    if tokens and tokens[-1][1] and tokens[-1][0] in ends:
        tokens.pop()
    text, observations = "", list[list[int]]()
    for is_sampled, part in groupby(tokens, key=lambda token: token[1]):
        start = len(text)
        text += special_tokens(tokenizer).decode([token for token, _ in part])
        if not is_sampled:
            observations.append([start, len(text)])
    return {"transcript": text, "observations": observations} if observations else {}


def response_of(rollout: Rollout, verdicts: Mapping[str, Verdict]) -> Response:
    """Return the fields of a rollout that are stored, with these verdicts."""
    problem = rollout.prompt.problem
    return Response(
        **fields_of(problem),
        sample=rollout.sample,
        response=rollout.text,
        tokens=rollout.num_tokens,
        finish=rollout.finish,
        verdicts=verdicts,
        said=rollout.said if rollout.observations else "",
        token_ids=() if rollout.observations or not all(rollout.sampled_mask) else list(rollout.token_ids),
    )


def fields_of(problem: Problem) -> dict[str, Any]:
    """Return the fields of a `Response` that describe its problem."""
    fields = {name: getattr(problem, name) for name in ("id", "level", "question", "answer", "earlier_turns")}
    meta = {name: problem.meta[name] for name in KEPT if name in problem.meta}
    return fields | {"subject": str(problem.meta.get("subject") or ""), "meta": meta}


def graded_again(response: Response, *, pool: WorkerPool) -> Response:
    """Return the same text with the verdicts of the current verifier."""
    text = response.said or response.response
    verdicts = _verdicts(response.answer, text, truncated=response.truncated, pool=pool)
    return dataclasses.replace(response, verdicts=verdicts)


def _verdicts(gold: str, text: str, *, truncated: bool, pool: WorkerPool) -> dict[str, Verdict]:
    verdicts: dict[str, Verdict] = {}
    for mode in MODES:
        verdict = verify(gold, text, mode=mode, pool=pool)
        if truncated and verdict.reason is Reason.NO_ANSWER:
            verdict = dataclasses.replace(verdict, reason=Reason.TRUNCATED)
        verdicts[mode] = verdict
    return verdicts


def to_row(response: Response) -> dict[str, Any]:
    """Return the response as a line of rollouts.jsonl. Times are left out, so that equal evaluations give equal
    files."""
    verdicts = {
        mode: {"correct": verdict.correct, "reason": verdict.reason.value, "extracted": verdict.extracted}
        for mode, verdict in response.verdicts.items()
    }
    row = {field.name: getattr(response, field.name) for field in dataclasses.fields(response)}
    row["answer"] = gold_value(response.answer)
    for name in ("earlier_turns", "transcript", "observations", "said", "token_ids", "score", "meta"):
        if not row[name] and row[name] != 0.0:
            del row[name]
    return {**row, "finish": response.finish.value, "verdicts": verdicts}


_KINDS: dict[str, type] = dict.fromkeys(("id", "level", "subject", "question", "answer", "response"), str)
_KINDS |= {"sample": int, "tokens": int}


def from_row(row: Mapping[str, Any], *, where: str) -> Response:
    """Read a line that `to_row` wrote. where: the file, for the error. Raise DataError for any other row."""
    try:
        verdicts = {
            mode: Verdict(correct=verdict["correct"], reason=Reason(verdict["reason"]), extracted=verdict["extracted"])
            for mode, verdict in row["verdicts"].items()
        }
        if not verdicts:
            raise ValueError("verdicts none, expected one or more")
        if isinstance(row["answer"], list):
            row = {**row, "answer": joined_golds(cast("list[str]", row["answer"]))}
        for name, kind in _KINDS.items():
            if not isinstance(row[name], kind) or isinstance(row[name], bool):
                raise ValueError(f"{name} is {row[name]!r:.60}")
        if not isinstance(row.get("said", ""), str):
            raise ValueError(f"said is {row['said']!r:.60}")
        if not isinstance(row.get("transcript", ""), str) or not isinstance(row.get("observations", []), list):
            raise ValueError("transcript is not a text, or observations are not a list")
        if not isinstance(row.get("meta", {}), dict):
            raise ValueError(f"meta is {row['meta']!r:.60}")
        if row.get("score") is not None and not (isinstance(row["score"], float) and isfinite(row["score"])):
            raise ValueError(f"score is {row['score']!r:.60}")
        for verdict in verdicts.values():
            if not isinstance(verdict.correct, bool) or not isinstance(verdict.extracted, str | None):
                raise ValueError(f"a verdict is {verdict!r:.120}")
        return Response(**{**row, "finish": Finish(row["finish"]), "verdicts": verdicts})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{where} has a row that was not written by `ansatz eval` or `ansatz sample` "
            f"({type(error).__name__}: {error}). Remove the file to sample again."
        ) from error


def answer_only_grader(pool: WorkerPool) -> ResponseGrader:
    """Read only the first box, so anything that the model reasons after its answer does not count. Mode "guess"."""
    return lambda rollouts: [_grade_guess(rollout, pool) for rollout in rollouts]


def _grade_guess(rollout: Rollout, pool: WorkerPool) -> Response:
    text = guess_of(rollout.said)
    verdict = verify(rollout.prompt.problem.answer, text, pool=pool)
    return dataclasses.replace(response_of(rollout, {"guess": verdict}), response=text, token_ids=())
