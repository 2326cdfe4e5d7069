"""Evaluation of a policy on held-out problems: k samples and one greedy response each, graded as in training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansatz.evaluate.estimators import Outcome, summarise, vote
from ansatz.rewards.base import Grader
from ansatz.rollout.base import Sampler, Sampling
from ansatz.types import Prompt, ScoredRollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Held-out prompts and how they are sampled; with the same noise each time, so that the policy alone differs."""

    prompts: Sequence[Prompt]
    grader: Grader
    sampling: Sampling
    k: int
    split: str

    def run(self, sampler: Sampler, *, stage: str, step: int) -> dict[str, Any]:
        """One row of evaluations.jsonl (see `estimators.summarise`), with where it was taken and how."""
        started = time.perf_counter()
        sampled = self.grader.score(sampler.generate(self.prompts, self.sampling), step=step)
        certain = self.grader.score(sampler.generate(self.prompts, self.sampling.greedy()), step=step)
        count = self.sampling.num_samples
        outcomes = [
            _outcome(prompt, sampled[index * count : (index + 1) * count], certain[index])
            for index, prompt in enumerate(self.prompts)
        ]
        return {
            "stage": stage,
            "step": step,
            "split": self.split,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": self.sampling.seed,
            "seconds": round(time.perf_counter() - started, 3),
            **summarise(outcomes, k=self.k, seed=self.sampling.seed),
        }


def _outcome(prompt: Prompt, samples: Sequence[ScoredRollout], greedy: ScoredRollout) -> Outcome:
    return Outcome(
        level=prompt.problem.level,
        correct=tuple(one.score.verdict.correct for one in samples),
        answers=tuple(vote(one.score.verdict, gold=prompt.problem.answer) for one in samples),
        lengths=tuple(one.rollout.num_tokens for one in samples),
        truncated=tuple(one.rollout.truncated for one in samples),
        greedy=greedy.score.verdict.correct,
    )
