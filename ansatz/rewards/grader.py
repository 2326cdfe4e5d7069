"""A recipe's rewards over a step's rollouts: value = sum of weight x value, the parts kept apart.

rewards:
  math_answer: {weight: 1.0, mode: strict, correct: 1.0, wrong: 0.0}
  length:      {weight: 0.1}
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ansatz.errors import ConfigError
from ansatz.rewards.base import Grader, RewardFunction, RewardResult, rewards
from ansatz.rewards.math_answer import ALGEBRA_TARGET
from ansatz.rewards.pool import WorkerPool
from ansatz.types import Problem, Reason, Rollout, Score, ScoredRollout, Verdict

_AT_REST: dict[str, Any] = {"step": 0, "pool": None, "verdicts": ()}
"""What a built-in reward is given to check its settings with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedReward:
    name: str
    weight: float
    function: RewardFunction
    injected: frozenset[str]


def build_grader(recipe: Mapping[str, Mapping[str, Any]], *, workers: int = 1, timeout_s: float = 1.0) -> RewardGrader:
    """The grader of a recipe's `rewards` section: name -> settings, `weight` (default 1.0) among them.

    workers: processes for algebra, and threads that grade prompts side by side. timeout_s: wall time of an algebra job.
    ConfigError, before any work, for an unknown reward or setting, a missing setting, or no reward at all.
    """
    if not recipe:
        raise ConfigError("rewards is empty: nothing would be learned. Name one, such as rewards: {math_answer: {}}.")
    parts = [_weighted(name, dict(settings)) for name, settings in recipe.items()]
    if all("verdicts" in part.injected for part in parts):
        raise _ungraded(parts[0].name)
    return RewardGrader(parts, workers, timeout_s)


def _weighted(name: str, settings: dict[str, Any]) -> WeightedReward:
    weight = settings.pop("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
        raise ConfigError(f"rewards.{name}.weight = {weight!r}: must be a finite number.")
    function, injected = rewards.bind(name, settings), rewards.injected(name)
    if ":" not in name:
        function((), **{key: _AT_REST[key] for key in injected})  # a wrong setting is an error now, not at step 1
    return WeightedReward(name=name, weight=float(weight), function=function, injected=injected)


def _ungraded(name: str) -> ConfigError:
    return ConfigError(
        f"rewards.{name} must know which responses are correct, and no other reward grades answers. Name one that "
        "does, such as math_answer (with weight: 0 if it is there for this alone)."
    )


def check_golds(recipe: Mapping[str, Mapping[str, Any]], problems: Sequence[Problem]) -> None:
    """DataError, with the rows' ids, where a reward of the recipe cannot read a problem's gold answer."""
    for name in recipe:
        if (check := rewards.gold_check(name)) is not None:
            check(problems)


class RewardGrader:
    """Scores rollouts with weighted rewards. Use as a context manager, or call `close`."""

    def __init__(self, parts: Sequence[WeightedReward], workers: int, timeout_s: float) -> None:
        self._parts = tuple(sorted(parts, key=lambda part: "verdicts" in part.injected))
        self._pool = WorkerPool(ALGEBRA_TARGET, workers=workers, timeout_s=timeout_s)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="grader") if workers > 1 else None

    def score(self, rollouts: Sequence[Rollout], *, step: int = 0) -> list[ScoredRollout]:
        """One ScoredRollout a rollout, in the order given. Rollouts of one problem are judged together.

        A verdict is that of the first reward which gives one; without any, a value above 0 counts as correct.
        """
        groups: dict[str, list[int]] = {}
        for index, rollout in enumerate(rollouts):
            groups.setdefault(rollout.prompt.problem.id, []).append(index)
        members = [[rollouts[index] for index in indices] for indices in groups.values()]
        judge = functools.partial(self._judge, step=step)
        judged = map(judge, members) if self._threads is None else self._threads.map(judge, members)
        scored: list[ScoredRollout | None] = [None] * len(rollouts)
        for indices, scores in zip(groups.values(), judged, strict=True):
            for index, score in zip(indices, scores, strict=True):
                scored[index] = ScoredRollout(rollout=rollouts[index], score=score)
        return [item for item in scored if item is not None]

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
        self._pool.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _judge(self, group: Sequence[Rollout], step: int) -> list[Score]:
        given: dict[str, Any] = {"step": step, "pool": self._pool}
        columns: dict[str, Sequence[RewardResult]] = {}
        for part in self._parts:
            if "verdicts" in part.injected and "verdicts" not in given:
                given["verdicts"] = [_verdict(row) for row in zip(*columns.values(), strict=True)]
                if None in given["verdicts"]:
                    raise _ungraded(part.name)
            judgements = part.function(group, **{key: given[key] for key in part.injected})
            columns[part.name] = _checked(part.name, judgements, group)
        return [self._score(rollout, {n: c[row] for n, c in columns.items()}) for row, rollout in enumerate(group)]

    def _score(self, rollout: Rollout, judgements: Mapping[str, RewardResult]) -> Score:
        value = sum(part.weight * judgements[part.name].value for part in self._parts)
        verdict = _verdict(judgements.values())
        if verdict is None:
            reason = Reason.EQUAL if value > 0 else Reason.DIFFERENT
            verdict = Verdict(correct=value > 0, reason=reason, stage="grader")
        if rollout.truncated and verdict.reason is Reason.NO_ANSWER:
            verdict = dataclasses.replace(verdict, reason=Reason.TRUNCATED)
        return Score(value=value, parts={n: j.value for n, j in judgements.items()}, verdict=verdict)


def _verdict(judgements: Iterable[RewardResult]) -> Verdict | None:
    """The first verdict among them."""
    return next((judgement.verdict for judgement in judgements if judgement.verdict is not None), None)


def _checked(name: str, judgements: Sequence[RewardResult], group: Sequence[Rollout]) -> Sequence[RewardResult]:
    """The judgements, where there is one a rollout and each is finite; a reward that breaks this is a ConfigError."""
    problem = group[0].prompt.problem.id
    if len(judgements) != len(group):
        raise ConfigError(
            f"reward {name!r} gave {len(judgements)} judgements for {len(group)} rollouts of problem {problem!r}. "
            "Return one a rollout, in order."
        )
    for judgement in judgements:
        if not math.isfinite(judgement.value):
            raise ConfigError(
                f"reward {name!r} gave {judgement.value} for problem {problem!r}. Return a finite number."
            )
    return judgements
