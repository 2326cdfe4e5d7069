"""The judge of guesses: what stands in the box that the prompt opened is the answer (see `prompts.answer_only`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ansatz.evaluate.responses import Judge, Response, response_of
from ansatz.prompts.answer_only import guess_of
from ansatz.rewards.math_answer.verify import verify
from ansatz.rewards.pool import WorkerPool
from ansatz.types import Rollout


def guesses(pool: WorkerPool) -> Judge:
    """Reads the first box alone, so nothing that the model may reason after its answer counts; reading "guess"."""

    def judge(rollouts: Sequence[Rollout]) -> list[Response]:
        return [_response(one, pool) for one in rollouts]

    return judge


def _response(rollout: Rollout, pool: WorkerPool) -> Response:
    text = guess_of(rollout.text)
    verdict = verify(rollout.prompt.problem.answer, text, pool=pool)
    return dataclasses.replace(response_of(rollout, {"guess": verdict}), response=text)
