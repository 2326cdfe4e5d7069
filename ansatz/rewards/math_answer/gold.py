"""Finds golds that cannot be parsed when data is loaded, before a run rewards anything with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ansatz.errors import DataError
from ansatz.rewards.math_answer.options import DEFAULT, Options, options_from
from ansatz.rewards.math_answer.parse import parse_gold
from ansatz.types import Problem, golds_of


class UnreadableGold(NamedTuple):
    """A problem whose gold cannot be parsed. line: its 1-based position in the source. why: the reason in words."""

    id: str
    line: int
    why: str


def unreadable_golds(problems: Iterable[Problem], **options: Any) -> list[UnreadableGold]:
    """Return the problems whose gold is empty, has no value, or has a form that is not supported.

    The line of a problem is its `meta["line"]` if its source provides one, else its position among `problems`.
    """
    chosen = options_from(options)
    unreadable: list[UnreadableGold] = []
    for place, problem in enumerate(problems, start=1):
        if why := gold_problem(problem.answer, chosen):
            line = problem.meta.get("line", place)
            unreadable.append(UnreadableGold(problem.id, int(line), why))
    return unreadable


def gold_problem(answer: str, options: Options = DEFAULT) -> str:
    """Say why one of the gold answers of a problem cannot be read; empty if all can."""
    readings = (parse_gold(gold, options) for gold in golds_of(answer))
    return next((reading.problem for reading in readings if reading.value is None), "")


def check_golds(problems: Iterable[Problem], **options: Any) -> None:
    """Raise DataError if golds cannot be parsed; names the first ten."""
    unreadable = unreadable_golds(problems, **options)
    if len(unreadable) == 1:
        gold = unreadable[0]
        raise DataError(f"a gold answer cannot be read: {gold.id!r} (line {gold.line}): {gold.why}.")
    if unreadable:
        shown = "; ".join(f"{gold.id!r} (line {gold.line}): {gold.why}" for gold in unreadable[:10])
        more = f"; and {len(unreadable) - 10} more" if len(unreadable) > 10 else ""
        raise DataError(f"{len(unreadable)} gold answers cannot be read: {shown}{more}. Correct or remove these rows.")
