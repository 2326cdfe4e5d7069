"""Evaluation of a policy on held-out problems: several samples and one greedy response each, graded as in training."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from ansatz.evaluate.estimators import collect_result, summarise
from ansatz.rewards.base import Grader
from ansatz.rollout.base import ResponseSource, Sampling
from ansatz.rollout.groups import GradedGroup, GroupSampler
from ansatz.track.rollout_rows import rollout_row
from ansatz.types import Prompt, ScoredRollout

SolutionLogps = Mapping[str, Mapping[float, float]]
"""By problem and temperature, the log-prob of the worked solution."""


class Evaluated(NamedTuple):
    """row: one row of evaluations.jsonl, with the numbers of `estimators.summarise` and the stage, step, split and
    sampling that they belong to. responses: rows of `track.rollout_rows`, problem by problem; empty if they are not to
    be stored."""

    row: dict[str, Any]
    responses: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Held-out prompts and how they are sampled. Every run uses the same noise, so only the policy differs.

    prompts: of different problems. k: of pass@k and maj@k. best_by: the origin of the problems that decide which
    checkpoint is best; empty for all problems.
    keeps_responses: whether an evaluation comes with its responses. solution_logps: computes the exact part under the
    policy as it is when it is called, for the problems that have a worked solution. progress: is called with
    how far it is.
    """

    prompts: Sequence[Prompt]
    grader: Grader
    sampling: Sampling
    k: int
    split: str
    best_by: str = ""
    keeps_responses: bool = True
    solution_logps: Callable[[], SolutionLogps] = dict
    progress: Callable[[str], object] = str

    def run(self, sampler: ResponseSource, *, stage: str, step: int) -> Evaluated:
        """Evaluate the sampler's current policy, which is the policy of the stage after `step`."""
        started = time.perf_counter()
        grade = functools.partial(self.grader.score, step=step)
        groups = GroupSampler(sampler, grade, grader_threads=self.grader.threads)
        done = count(1)

        def tell(_: object) -> None:
            self.progress(f"evaluation at step {step}: {next(done)} of {2 * len(self.prompts)} groups of responses")

        sampled = groups.run(self.prompts, self.sampling, on_group=tell).groups
        greedy = groups.run(self.prompts, self.sampling.greedy(), on_group=tell).groups
        exact = self.solution_logps()
        results = [
            collect_result(
                group.graded,
                greedy_group.graded[0],
                exact.get(group.prompt.problem.id, {}).get(self.sampling.temperature),
            )
            for group, greedy_group in zip(sampled, greedy, strict=True)
        ]
        row = {
            "stage": stage,
            "step": step,
            "split": self.split,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": self.sampling.seed,
            "seconds": round(time.perf_counter() - started, 3),
            **({"best_by": self.best_by} if self.best_by else {}),
            **summarise(results, k=self.k),
        }
        return Evaluated(row, self._rows(sampled, greedy, exact, f"{stage}/{step}/{self.split}"))

    def _rows(
        self, sampled: Sequence[_Graded], greedy: Sequence[_Graded], exact: SolutionLogps, place: str
    ) -> list[dict[str, Any]]:
        pairs = zip(sampled, greedy, strict=True) if self.keeps_responses else ()
        return [
            rollout_row(
                scored,
                group=f"{place}/{index}",
                noise_step=self.sampling.step,
                temperature=sampling.temperature,
                solution_logps={} if sampling.temperature else exact.get(group.prompt.problem.id, {}),
            )
            for index, groups in enumerate(pairs)
            for group, sampling in zip(groups, (self.sampling, self.sampling.greedy()), strict=True)
            for scored in group.graded
        ]


_Graded = GradedGroup[list[ScoredRollout]]
