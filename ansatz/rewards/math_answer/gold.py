"""Golds that cannot be read, found when data is loaded and not when a policy is already being paid by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ansatz.errors import DataError
from ansatz.rewards.math_answer.options import options_from
from ansatz.rewards.math_answer.parse import read_gold
from ansatz.types import Problem


class UnreadableGold(NamedTuple):
    """line: 1-based place of the problem in its source; why: in words."""

    id: str
    line: int
    why: str


def unreadable_golds(problems: Iterable[Problem], **options: Any) -> list[UnreadableGold]:
    """The problems whose answer no verdict can be built on: empty, without value, or in no form that we read.

    The line of a problem is its `meta["line"]` where its source gives one, else its place among `problems`.
    """
    chosen = options_from(options)
    found: list[UnreadableGold] = []
    for place, problem in enumerate(problems, start=1):
        reading = read_gold(problem.answer, chosen)
        if reading.value is None:
            line = problem.meta.get("line", place)
            found.append(UnreadableGold(problem.id, int(line), reading.problem))
    return found


def check_golds(problems: Iterable[Problem], **options: Any) -> None:
    """DataError naming every unreadable gold (the first ten in full)."""
    found = unreadable_golds(problems, **options)
    if found:
        shown = "; ".join(f"{gold.id!r} (line {gold.line}): {gold.why}" for gold in found[:10])
        more = f"; and {len(found) - 10} more" if len(found) > 10 else ""
        raise DataError(f"{len(found)} gold answers cannot be read: {shown}{more}. Correct or leave out these rows.")
