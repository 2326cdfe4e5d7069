"""The evaluations of a run whose responses are stored, and the changes between two of them, problem by problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ansatz.track.rollout_rows import StoredResponse, read_responses
from ansatz.track.runs import PipelineRun
from ansatz.track.step_files import EVALUATIONS, step_files


class StoredEvaluation(NamedTuple):
    """path: the file with the responses."""

    stage: str
    step: int
    split: str
    path: Path

    @property
    def title(self) -> str:
        return f"{self.stage}, step {self.step}"


def stored_evaluations(run: PipelineRun) -> list[StoredEvaluation]:
    """Return the stored evaluations of all stages, oldest first."""
    return [
        StoredEvaluation(stage.name, file.step, file.kind, file.path)
        for stage in run.stages
        for file in step_files(stage.folder, EVALUATIONS)
    ]


def before_and_after(evaluations: Sequence[StoredEvaluation]) -> tuple[StoredEvaluation, StoredEvaluation] | None:
    """Return (the evaluation that the last stage began with, the newest evaluation). The first of them is the last one
    of an earlier stage, or else the first of the same stage. None if there are not two."""
    if len(evaluations) < 2:
        return None
    after = evaluations[-1]
    earlier = [each for each in evaluations if each.stage != after.stage]
    return (earlier[-1] if earlier else evaluations[0]), after


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemChange:
    """The responses to one problem: pairs of (before, after) with the same sample, the greedy ones first."""

    problem: str
    pairs: Sequence[tuple[StoredResponse, StoredResponse]]

    @property
    def num_correct(self) -> tuple[int, int]:
        """Return how many of the responses are correct, before and after."""
        return sum(a.verdict.correct for a, _ in self.pairs), sum(b.verdict.correct for _, b in self.pairs)

    @property
    def change(self) -> float:
        """Return by how much the fraction of correct responses has risen."""
        return fmean(b.verdict.correct - a.verdict.correct for a, b in self.pairs)

    @property
    def flipped(self) -> tuple[StoredResponse, StoredResponse]:
        """Return the first pair whose verdict changed in the direction of the whole problem."""
        return next((a, b) for a, b in self.pairs if (b.verdict.correct - a.verdict.correct) * self.change > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes between two evaluations on the problems that both have.

    same_noise: whether each pair of responses was sampled with the same noise. better, worse: the problems with more,
    or fewer, correct responses, the largest change first; of equal ones, in the order of the problems.
    """

    num_problems: int
    num_responses: int
    became_correct: int
    became_wrong: int
    same_noise: bool
    better: Sequence[ProblemChange]
    worse: Sequence[ProblemChange]


def changes(before: Iterable[StoredResponse], after: Iterable[StoredResponse]) -> Changes:
    """Compare two evaluations of the same problems, response by response."""
    known = {_key(response): response for response in before}
    pairs_of: defaultdict[str, list[tuple[StoredResponse, StoredResponse]]] = defaultdict(list)
    for response in after:
        if (earlier := known.get(_key(response))) is not None:
            pairs_of[response.problem].append((earlier, response))
    problems = [
        ProblemChange(problem=name, pairs=sorted(pairs, key=lambda pair: (not pair[1].greedy, pair[1].sample)))
        for name, pairs in pairs_of.items()
    ]
    pairs = [pair for problem in problems for pair in problem.pairs]
    return Changes(
        num_problems=len(problems),
        num_responses=len(pairs),
        became_correct=sum(b.verdict.correct and not a.verdict.correct for a, b in pairs),
        became_wrong=sum(a.verdict.correct and not b.verdict.correct for a, b in pairs),
        same_noise=all(a.noise == b.noise for a, b in pairs if not b.greedy),
        better=sorted((each for each in problems if each.change > 0), key=lambda each: -each.change),
        worse=sorted((each for each in problems if each.change < 0), key=lambda each: each.change),
    )


def compare_ends(evaluations: Sequence[StoredEvaluation]) -> tuple[StoredEvaluation, StoredEvaluation, Changes] | None:
    """Return the pair of `before_and_after` and the changes between the two; None if there are not two."""
    pair = before_and_after(evaluations)
    return pair and (*pair, changes(read_responses(pair[0].path), read_responses(pair[1].path)))


def _key(response: StoredResponse) -> tuple[str, int, bool]:
    return response.problem, response.sample, response.greedy
