"""A problem with the opening of its environment, as the prompt shows it, and the problem as it was before.

An environment may open the conversation of a problem, once, before prompts are rendered (`environments.openings`). The
environment starts from the problem as it was for every response; the problem's `meta` keeps it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ansatz.types import OPENING, SYSTEM_ROLES, Problem


def is_opened(problem: Problem) -> bool:
    """Tell whether the problem's environment has been asked for the opening of the conversation, and had one or
    failed."""
    return OPENING in problem.meta


def opening_error(problem: Problem) -> str:
    """Return the reason why the environment could not open the conversation; empty if it could."""
    return problem.meta.get(OPENING, {}).get("error", "")


def opened(problem: Problem, opening: str | Sequence[Mapping[str, Any]], *, error: str = "") -> Problem:
    """Return the problem as the prompt shows it after the opening of its environment.

    A text is shown on a new line after the question. Messages are shown before the question, and a system prompt before
    all turns; if the last message is a user's, it replaces the question.
    error: the reason why the environment could not open the conversation; empty if it could.
    """
    question, before = problem.question, list[dict[str, Any]]()
    if isinstance(opening, str):
        question = f"{question}\n{opening}" if opening else question
    else:
        before = [dict(message) for message in opening]
        if before and before[-1]["role"] == "user":
            question = before.pop()["content"]
    systems = [turn for turn in before if turn["role"] in SYSTEM_ROLES]
    said = [turn for turn in before if turn["role"] not in SYSTEM_ROLES]
    earlier = list(problem.earlier_turns)
    original = {"question": problem.question, "earlier_turns": earlier, "num_turns": len(said)}
    meta = {**problem.meta, OPENING: {**original, **({"error": error} if error else {})}}
    if before:
        meta["earlier_turns"] = [*systems, *earlier, *said]
    return dataclasses.replace(problem, question=question, meta=meta)


def unopened(problem: Problem) -> Problem:
    """Return the problem without the opening of its environment."""
    if not is_opened(problem):
        return problem
    meta = dict(problem.meta)
    opening = meta.pop(OPENING)
    meta.pop("earlier_turns", None)
    if opening["earlier_turns"]:
        meta["earlier_turns"] = opening["earlier_turns"]
    return dataclasses.replace(problem, question=opening["question"], meta=meta)
