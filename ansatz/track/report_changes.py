"""The section of a report that shows held-out problems before and after training: what the policy answers now.

Every evaluation of a run samples with the same noise. What differs between two responses to a problem therefore comes
from the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansatz.errors import DataError
from ansatz.track.jsonl import read_jsonl
from ansatz.track.page import MAX_RESPONSE_CHARS
from ansatz.track.rollout_rows import read_responses
from ansatz.track.runs import PipelineRun
from ansatz.track.stored_evaluations import (
    ProblemChange,
    StoredEvaluation,
    before_and_after,
    changes,
    stored_evaluations,
)
from ansatz.track.word_diff import word_diff
from ansatz.types import Problem

SHOWN = 3
"""Problems that are shown of those that got better, and of those that got worse."""


def heldout_changes(run: PipelineRun, split: str) -> dict[str, Any]:
    """Return what the template `changes.html` shows: the counts, and the problems of a split that changed most since
    the last stage began. found: None if no two evaluations have stored responses."""
    evaluations = [each for each in stored_evaluations(run) if each.split == split]
    pair = before_and_after(evaluations)
    if pair is None:
        return {"found": None, "stored": evaluations, "groups": []}
    return changes_of(*pair, problems=read_problem_texts(run.folder, split))


def changes_of(before: StoredEvaluation, after: StoredEvaluation, *, problems: Mapping[str, Problem]) -> dict[str, Any]:
    """Return what changed between two evaluations: the counts, and the problems that changed most."""
    found = changes(read_responses(before.path), read_responses(after.path))
    groups = (("Solved more often", found.better), ("Solved less often", found.worse))
    shown = [
        (title, [_describe(each, before, after, problems.get(each.problem)) for each in group[:SHOWN]])
        for title, group in groups
    ]
    return {"found": found, "stored": [before, after], "groups": shown, "shown": SHOWN}


def read_problem_texts(run: Path, split: str) -> dict[str, Problem]:
    """Return the problems of a split by id, as the run has stored them; empty if the file is missing."""
    path = run / "problems" / f"{split}.jsonl"
    try:
        return {row["id"]: Problem(**row) for row in read_jsonl(path)}
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} was changed since it was written ({error}). Restore or remove it.") from error


def _describe(
    change: ProblemChange, before: StoredEvaluation, after: StoredEvaluation, problem: Problem | None
) -> dict[str, Any]:
    """Return a problem, and of each evaluation the response whose verdict changed, with what differs from the other."""
    first, second = change.flipped
    which = "the greedy response" if second.greedy else f"sample {second.sample}"
    pieces = word_diff(first.text[:MAX_RESPONSE_CHARS], second.text[:MAX_RESPONSE_CHARS])
    sides = [
        {
            "title": evaluation.title,
            "row": response,
            "note": f"{num_correct} of {len(change.pairs)} responses correct; this is {which}, with {response.tokens} "
            "tokens",
            "pieces": part,
            "mark": mark,
            "hidden": len(response.text) - MAX_RESPONSE_CHARS,
        }
        for evaluation, response, num_correct, part, mark in zip(
            (before, after), (first, second), change.num_correct, pieces, ("del", "ins"), strict=True
        )
    ]
    return {"problem": change.problem, "asked": problem, "sides": sides}
