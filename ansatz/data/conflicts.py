"""Equal questions with different gold answers: at most one of them can be right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from ansatz.types import Problem

_SHOWN = 3


class GoldsByQuestion:
    """Remembers the gold answer of each question, with the turns before it. Problems without one are not counted.

    same: whether two gold answers that are different texts mean the same, such as 1/2 and 0.5.
    """

    def __init__(self, same: Callable[[str, str], bool]) -> None:
        self._same = same
        self._first: dict[bytes, tuple[str, tuple[str, ...]]] = {}
        self.conflicts: list[tuple[str, tuple[str, ...], str, tuple[str, ...]]] = []
        """(id, gold answers, id, gold answers) of a problem and of an earlier one with the same question."""

    def add(self, problem: Problem) -> None:
        if not problem.answer:
            return
        said = json.dumps([problem.question.strip(), [*problem.earlier_turns]], sort_keys=True)
        first, golds = self._first.setdefault(hashlib.sha256(said.encode()).digest(), (problem.id, problem.answers))
        if golds != problem.answers and not any(self._same(left, right) for left in golds for right in problem.answers):
            self.conflicts.append((first, golds, problem.id, problem.answers))

    def sentence(self) -> str:
        """Say how many there are, with the first ones; empty if there are none."""
        if not self.conflicts:
            return ""
        shown = "; ".join(
            f"{first!r} has {' or '.join(golds)!r:.60} and {other!r} has {' or '.join(others)!r:.60}"
            for first, golds, other, others in self.conflicts[:_SHOWN]
        )
        more = f", and {len(self.conflicts) - _SHOWN} more" if len(self.conflicts) > _SHOWN else ""
        one = len(self.conflicts) == 1
        return (
            f"{len(self.conflicts)} problem{'' if one else 's'} {'has' if one else 'have'} the question of an earlier "
            f"one and a different gold answer: {shown}{more}"
        )
