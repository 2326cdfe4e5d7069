"""The reward for a correct final answer. The package `ansatz_verify` decides whether an answer is correct."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from ansatz_verify.gold import check_golds as unreadable_answers
from ansatz_verify.grade import verify
from ansatz_verify.options import Options, options_from
from ansatz_verify.pool import WorkerPool

from ansatz.errors import ConfigError, DataError
from ansatz.registry import settings_of
from ansatz.rewards.base import RewardResult
from ansatz.types import Problem, Rollout

_OPTIONS = {option.name for option in dataclasses.fields(Options)}


def math_answer(
    rollouts: Sequence[Rollout],
    *,
    correct: float = 1.0,
    wrong: float = 0.0,
    pool: WorkerPool | None = None,
    **settings: Any,
) -> list[RewardResult]:
    """`correct` if the answer of the response equals the gold answer of the problem, else `wrong` (such as +5 and -5).

    settings: the settings of `verify` (mode, join_boxes, ...) and the fields of `Options`. A recipe sets each by name.
    """
    try:
        options_from({name: value for name, value in settings.items() if name in _OPTIONS})
    except ValueError as error:
        raise ConfigError(f"math_answer: {error}") from error
    verdicts = [verify(r.prompt.problem.answer, r.said, pool=pool, **settings) for r in rollouts]
    return [RewardResult(value=correct if verdict else wrong, verdict=verdict) for verdict in verdicts]


def _signature() -> inspect.Signature:
    """Return the signature with the options of `verify` by name: recipes could not name them behind `**settings`."""
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


def check_golds(problems: Iterable[Problem], **options: Any) -> None:
    """Raise DataError if golds are empty, have no value, or have a form that is not supported; names the first ten.

    The line of a problem is its `meta["line"]` if its source provides one, else its position among `problems`.
    """
    rows, unreadable = list(problems), list[str]()
    for place, _, why in unreadable_answers((problem.answer for problem in rows), **options):
        problem = rows[place - 1]
        unreadable.append(f"{problem.id!r} (line {int(problem.meta.get('line', place))}): {why}")
    if len(unreadable) == 1:
        raise DataError(f"a gold answer cannot be read: {unreadable[0]}.")
    if unreadable:
        more = f"; and {len(unreadable) - 10} more" if len(unreadable) > 10 else ""
        raise DataError(
            f"{len(unreadable)} gold answers cannot be read: {'; '.join(unreadable[:10])}{more}. Correct or remove "
            "these rows."
        )
