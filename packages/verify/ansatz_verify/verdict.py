"""The result of grading, and the form of a gold that has several right answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class Reason(StrEnum):
    """The reason for a verdict. Only EQUAL is correct."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NO_ANSWER = "no_answer"  # the response came to its own end without an answer
    TRUNCATED = "truncated"  # the response was cut off before an answer (`Rollout.truncated`)
    HEDGED = "hedged"  # the response gives two answers, or doubts its own
    UNPARSED = "unparsed"  # the answer, or what a judge said about it, cannot be read
    TIMEOUT = "timeout"  # the grader, or a program that is the answer, did not end in time
    CRASHED = "crashed"  # the grader or its helper failed, so nothing is known about the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision of a grader about one response. It is true if the response is correct.

    extracted: the answer that was compared, as text; None if the response has none.
    stage: the decisive one: "extract", "string", "number", "structure", "algebra", a reward's name, or "grader".
    seconds: wall time of the grading. Comparisons ignore it, so that the verdicts of a replay are equal.
    """

    correct: bool
    reason: Reason
    extracted: str | None = None
    stage: str = ""
    seconds: float = field(default=0.0, compare=False)

    def __bool__(self) -> bool:
        return self.correct


def golds_of(answer: str) -> tuple[str, ...]:
    """Return the gold answers that a text states: the items of a JSON list of texts, as `joined_golds` writes it, else
    the text itself. Each of them is right. Such a list is never mathematics: (1, 2) and [1, 2] have no quotation
    marks."""
    if not answer.startswith('["'):
        return (answer,)
    try:
        golds = json.loads(answer)
    except ValueError:
        return (answer,)
    is_list = bool(golds) and all(isinstance(gold, str) for gold in golds)
    return tuple(golds) if is_list else (answer,)


def joined_golds(golds: Iterable[str]) -> str:
    """Return the gold answers as one text: the only one, or a JSON list of those that differ. A single one that is
    itself such a list is put into a list."""
    different = list(dict.fromkeys(golds))
    is_one = len(different) == 1 and golds_of(different[0]) == (different[0],)
    return different[0] if is_one else json.dumps(different, ensure_ascii=False)
