"""Grades files of responses, whoever wrote them: one JSON object per line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ansatz_verify.gold import gold_problem
from ansatz_verify.grade import verify
from ansatz_verify.marks import Mode
from ansatz_verify.pool import WorkerPool
from ansatz_verify.responses import GOLDS, RESPONSES, find, gold_of, is_a, responses_of
from ansatz_verify.verdict import golds_of


def graded(gold: str, response: str, *, mode: Mode = "strict", pool: WorkerPool | None = None) -> dict[str, Any]:
    """Return a verdict as a row of a file holds it, with the gold answer, or the list of several."""
    verdict, golds = verify(gold, response, mode=mode, pool=pool), golds_of(gold)
    found = {"correct": verdict.correct, "reason": verdict.reason, "extracted": verdict.extracted}
    found |= {"stage": verdict.stage, "seconds": round(verdict.seconds, 6)}
    return {**found, "gold": gold if golds == (gold,) else list(golds)}


class Lines:
    """The lines of files on their way to verdicts: their counts, the lines that were left out or noted, and why.

    problems: by reason, how many lines it concerns and the place of the first one.
    """

    def __init__(
        self, *, gold_key: str | None = None, response_keys: Sequence[str] = (), mode: Mode = "strict"
    ) -> None:
        self._gold_keys, self._response_keys = [gold_key] if gold_key else GOLDS, response_keys
        self._mode: Mode = mode
        self.counts = Counter[str]()
        self.problems: dict[str, tuple[int, str]] = {}

    def graded(self, name: str, lines: Iterable[bytes | str]) -> Iterator[dict[str, Any]]:
        """Yield one row per response: the fields of its line, the text as `response`, and the `verdict`."""
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError):
                self._note("no JSON", f"{name} line {number}")
                continue
            if line.strip():
                yield from self._rows(row, f"{name} line {number}")

    def _rows(self, row: Any, place: str) -> Iterator[dict[str, Any]]:
        if not is_a(row, dict):
            return self._note("no JSON object", place)
        known = self._response_keys or [_first(row, RESPONSES) or RESPONSES[0]]
        golds = [key for key in self._gold_keys if key not in known]
        fields = f"its fields are {', '.join(row) or 'none'}"
        if (key := _first(row, golds)) is None:
            return self._note("no gold answer (name its field with --gold-key)", f"{place}, {fields}")
        try:
            gold = gold_of(find(row, key))
        except ValueError as error:
            return self._note(f"no gold answer that can be read ({error})", place)
        if problem := gold_problem(gold):
            self._note(f"a gold answer that only equals the same text ({problem})", place)
        for key in known:
            if (value := find(row, key)) in (None, []):
                self._note("no response (name its field with --response-key)", f"{place}, {fields}")
                continue
            for response in responses_of(value):
                verdict = graded(gold, response, mode=self._mode)
                self.counts[verdict["reason"]] += 1
                yield {**row, "response": response, "verdict": verdict}
        return None

    def _note(self, problem: str, place: str) -> None:
        count, first = self.problems.get(problem, (0, place))
        self.problems[problem] = count + 1, first

    def summary(self) -> Iterator[str]:
        """Yield the lines of a summary for the user: the verdicts by reason, and each problem once."""
        yield f"{self.counts.total()} responses, {self.counts['equal']} correct"
        yield from (f"{reason:12s} {count}" for reason, count in self.counts.most_common())
        for problem, (count, first) in self.problems.items():
            yield f"{count} {'lines have' if count > 1 else 'line has'} {problem}; the first is {first}."


def _first(row: Any, keys: Iterable[str]) -> str | None:
    return next((key for key in keys if find(row, key) not in (None, "", [])), None)
