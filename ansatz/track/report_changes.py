"""The section of a report that shows held-out problems before and after training: what the policy answers now.

Every evaluation of a run samples with the same noise. What differs between two responses to a problem therefore comes
from the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ansatz.errors import DataError
from ansatz.track.jsonl import read_jsonl
from ansatz.track.page import MAX_RESPONSE_CHARS, question_text, response_box, text
from ansatz.track.rollout_rows import StoredResponse, read_responses
from ansatz.track.runs import PipelineRun
from ansatz.track.stored_evaluations import (
    Changes,
    ProblemChange,
    StoredEvaluation,
    before_and_after,
    changes,
    stored_evaluations,
)
from ansatz.track.word_diff import Piece, word_diff
from ansatz.types import Problem, shown_golds

SHOWN = 3
"""Problems that are shown of those that got better, and of those that got worse."""


def heldout_changes(run: PipelineRun, split: str) -> str:
    """Return the problems of a split that changed most since the last stage began; a sentence if that cannot be
    said."""
    evaluations = [each for each in stored_evaluations(run) if each.split == split]
    pair = before_and_after(evaluations)
    if pair is None:
        return _section(split, f"<p>{text(_tell_why_not(evaluations))}</p>")
    return _section(split, changes_of(*pair, problems=read_problem_texts(run.folder, split)))


def changes_of(before: StoredEvaluation, after: StoredEvaluation, *, problems: Mapping[str, Problem]) -> str:
    """Return what changed between two evaluations: the counts, and the problems that changed most."""
    found = changes(read_responses(before.path), read_responses(after.path))
    groups = (("Solved more often", found.better), ("Solved less often", found.worse))
    boxes = "".join(
        f'<h3 class="caption">{title}</h3><div class="rollouts">'
        f"{''.join(_problem(each, before, after, problems.get(each.problem)) for each in group[:SHOWN])}</div>"
        for title, group in groups
        if group
    )
    return f"<p>{text(_counts(found, before, after))}</p>{boxes}"


def read_problem_texts(run: Path, split: str) -> dict[str, Problem]:
    """Return the problems of a split by id, as the run has stored them; empty if the file is missing."""
    path = run / "problems" / f"{split}.jsonl"
    try:
        return {row["id"]: Problem(**row) for row in read_jsonl(path)}
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} was changed since it was written ({error}). Restore or remove it.") from error


def _section(split: str, body: str) -> str:
    return f"<section><h2>Before and after: {text(split)}</h2>{body}</section>"


def _tell_why_not(evaluations: Sequence[StoredEvaluation]) -> str:
    if evaluations:
        return (
            f"Only the evaluation at {evaluations[0].title} has stored responses, so no problem can be read before and "
            "after."
        )
    return (
        "No responses of the evaluations are stored (the run is of an older version, or save.samples was false), so no "
        "problem can be read before and after."
    )


def _counts(found: Changes, before: StoredEvaluation, after: StoredEvaluation) -> str:
    noise = (
        "sampled with the same noise, so what differs comes from the weights"
        if found.same_noise
        else "sampled with other noise, so chance is part of what differs"
    )
    shown = f"; those that changed most are shown, at most {SHOWN} of each" if found.better or found.worse else ""
    return (
        f"From {before.title} to {after.title}: of {found.num_responses} responses to {found.num_problems} problems, "
        f"{found.became_correct} became correct and {found.became_wrong} became wrong. Each pair of responses was "
        f"{noise}. {len(found.better)} problems are solved more often and {len(found.worse)} less often{shown}."
    )


def _problem(change: ProblemChange, before: StoredEvaluation, after: StoredEvaluation, problem: Problem | None) -> str:
    first, second = change.flipped
    num_before, num_after = change.num_correct
    if problem is None:
        head = f"<h3>Problem {text(change.problem)}</h3>"
    else:
        level = f"Level {text(problem.level)}" if problem.level else f"Problem {text(problem.id)}"
        head = f"<h3>{level}</h3>{question_text(problem.dialogue, shown_golds(problem.answer))}"
    which = "the greedy response" if second.greedy else f"sample {second.sample}"
    old, new = word_diff(first.text[:MAX_RESPONSE_CHARS], second.text[:MAX_RESPONSE_CHARS])
    boxes = _box(before, first, num_before, len(change.pairs), which, old, "del") + _box(
        after, second, num_after, len(change.pairs), which, new, "ins"
    )
    return f'<article class="card">{head}<div class="snapshots">{boxes}</div></article>'


def _box(
    evaluation: StoredEvaluation,
    response: StoredResponse,
    num_correct: int,
    num_responses: int,
    which: str,
    pieces: Sequence[Piece],
    mark: str,
) -> str:
    marked = "".join(text(each.text) if each.shared else f"<{mark}>{text(each.text)}</{mark}>" for each in pieces)
    hidden = len(response.text) - MAX_RESPONSE_CHARS
    rest = f"<p>{hidden} more characters are in the file.</p>" if hidden > 0 else ""
    return response_box(
        evaluation.title,
        response.verdict,
        f"{num_correct} of {num_responses} responses correct; this is {which}, with {response.tokens} tokens",
        f"<pre>{marked}</pre>{rest}",
    )
