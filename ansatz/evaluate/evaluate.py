"""Evaluation of a policy on held-out problems: several samples and one greedy response each, graded as in training."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansatz.evaluate.estimators import ProblemResult, summarise, vote
from ansatz.rewards.base import Grader
from ansatz.rollout.base import ResponseSource, Sampling
from ansatz.rollout.groups import GroupSampler
from ansatz.types import Prompt, ScoredRollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Held-out prompts and how they are sampled. Every run uses the same noise, so only the policy differs.

    prompts: of different problems. k: of pass@k and maj@k. grader_threads: problems graded at the same time.
    """

    prompts: Sequence[Prompt]
    grader: Grader
    sampling: Sampling
    k: int
    split: str
    grader_threads: int = 1

    def run(self, sampler: ResponseSource, *, stage: str, step: int) -> dict[str, Any]:
        """One row of evaluations.jsonl: the numbers of `estimators.summarise`, and what they were measured on."""
        started = time.perf_counter()
        groups = GroupSampler(
            sampler, functools.partial(self.grader.score, step=step), grader_threads=self.grader_threads
        )
        sampled = groups.run(self.prompts, self.sampling).groups
        greedy = groups.run(self.prompts, self.sampling.greedy()).groups
        results = [
            _result(group.prompt, group.graded, greedy_group.graded[0])
            for group, greedy_group in zip(sampled, greedy, strict=True)
        ]
        return {
            "stage": stage,
            "step": step,
            "split": self.split,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": self.sampling.seed,
            "seconds": round(time.perf_counter() - started, 3),
            **summarise(results, k=self.k, seed=self.sampling.seed),
        }


def _result(prompt: Prompt, samples: Sequence[ScoredRollout], greedy: ScoredRollout) -> ProblemResult:
    return ProblemResult(
        level=prompt.problem.level,
        correct=tuple(sample.score.verdict.correct for sample in samples),
        votes=tuple(vote(sample.score.verdict, gold=prompt.problem.answer) for sample in samples),
        lengths=tuple(sample.rollout.num_tokens for sample in samples),
        truncated=tuple(sample.rollout.truncated for sample in samples),
        greedy=greedy.score.verdict.correct,
    )
