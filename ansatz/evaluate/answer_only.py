"""Grading of answers without reasoning: the content of the box that the prompt opened (see `prompts.answer_only`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ansatz.evaluate.responses import Response, ResponseGrader, response_of
from ansatz.prompts.answer_only import guess_of
from ansatz.rewards.math_answer.verify import verify
from ansatz.rewards.pool import WorkerPool
from ansatz.types import Rollout


def answer_only_grader(pool: WorkerPool) -> ResponseGrader:
    """Read only the first box, so anything that the model reasons after its answer does not count. Mode "guess"."""

    def grade(rollouts: Sequence[Rollout]) -> list[Response]:
        return [_response(rollout, pool) for rollout in rollouts]

    return grade


def _response(rollout: Rollout, pool: WorkerPool) -> Response:
    text = guess_of(rollout.said)
    verdict = verify(rollout.prompt.problem.answer, text, pool=pool)
    return dataclasses.replace(response_of(rollout, {"guess": verdict}), response=text)
