"""Problems that a run cannot use: the recipe key data.unfit decides whether they stop the run or are left out.

A row is unfit if a field is missing, if a reward cannot read its gold answer, or if its prompt or demonstration is too
long. All unfit rows of a split are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ansatz.data.unfit import UnfitRow, short, unfit_message
from ansatz.errors import DataError, ModelError
from ansatz.types import Problem

Check = Callable[[Sequence[Problem]], None]
"""Raises DataError or ModelError for a problem that cannot be used."""


class UnfitProblems:
    """Applies data.unfit, and remembers the rows that were left out of each split."""

    def __init__(self, policy: Literal["error", "drop"]) -> None:
        self._policy = policy
        self.dropped: dict[str, list[UnfitRow]] = {}

    def usable(
        self, split: str, problems: Sequence[Problem], check: Check, *, unread: Sequence[UnfitRow] = ()
    ) -> Sequence[Problem]:
        """Return the problems that `check` accepts. split: a section of `data`, or another key that names rows.
        unread: rows of the split that did not even become problems.

        Raise DataError, with all unfit rows, if data.unfit is "error" and there is one, or if no problem is left.
        """
        unfit, kept = [*unread], problems
        if _refusal(check, problems) is not None:
            refusals = [(problem, _refusal(check, [problem])) for problem in problems]
            kept = [problem for problem, refusal in refusals if refusal is None]
            unfit += [_unfit_row(problem, refusal) for problem, refusal in refusals if refusal is not None]
        if unfit and (self._policy == "error" or not kept):
            what = split if "." in split else f"data.{split}"
            message = unfit_message(unfit, total=len(problems) + len(unread), what=what)
            if len({problem.origin for problem in problems}) > 1:
                message += (
                    " If each source has rewards of its own, bind them to it, as in rewards: {code_tests: {sources: "
                    "[code_tasks]}}."
                )
            raise DataError(message)
        if unfit:
            self.dropped[split] = [*self.dropped.get(split, ()), *unfit]
        return kept


def _refusal(check: Check, problems: Sequence[Problem]) -> str | None:
    """Return why the check refuses the problems; None if it accepts them."""
    try:
        check(problems)
    except (DataError, ModelError) as error:
        return str(error)
    return None


def _unfit_row(problem: Problem, refusal: str) -> UnfitRow:
    line = f" (line {problem.meta['line']})" if "line" in problem.meta else ""
    return UnfitRow(f"problem {problem.id!r}{line}", refusal, short(problem.answer))
