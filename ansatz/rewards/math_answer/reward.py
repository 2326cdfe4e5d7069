"""The reward for a correct final answer."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

from ansatz.registry import settings_of
from ansatz.rewards.base import RewardResult
from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.verify import verify
from ansatz.rewards.pool import WorkerPool
from ansatz.types import Rollout


def math_answer(
    rollouts: Sequence[Rollout],
    *,
    correct: float = 1.0,
    wrong: float = 0.0,
    pool: WorkerPool | None = None,
    **settings: Any,
) -> list[RewardResult]:
    """`correct` if the answer of the response equals the gold answer of the problem, else `wrong` (such as +5 and -5).

    settings: those of `verify` (mode, join_boxes, ...) and the fields of `Options`. A recipe sets each by its name.
    """
    verdicts = [verify(r.prompt.problem.answer, r.said, pool=pool, **settings) for r in rollouts]
    return [RewardResult(value=correct if verdict else wrong, verdict=verdict) for verdict in verdicts]


def _signature() -> inspect.Signature:
    """Return the signature is the schema. Without this, a recipe could not name the settings behind `**settings`."""
    declared = [
        p for p in inspect.signature(math_answer).parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    names = {parameter.name for parameter in declared}
    passed_on = [parameter for name, parameter in settings_of(verify).items() if name not in names]
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
        for f in dataclasses.fields(Options)
    ]
    return inspect.Signature([*declared, *passed_on, *options])


math_answer.__signature__ = _signature()  # pyright: ignore[reportFunctionMemberAccess]
