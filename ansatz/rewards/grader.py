"""The rewards of a recipe, applied to rollouts: value = sum of weight x value, with the parts kept.

rewards:
  math_answer: {weight: 1.0, mode: strict, correct: 1.0, wrong: 0.0}
  repetition:  {weight: 0.1}
  mine.py:brief: {deadline_s: 60}
  code_tests:  {sources: [code_tasks]}
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import traceback
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from ansatz_verify.grade import ALGEBRA_TARGET
from ansatz_verify.pool import WorkerPool

from ansatz.errors import AnsatzError, ConfigError, RewardError
from ansatz.process import keep_settings
from ansatz.rewards.base import VERDICTS, Grader, RewardFunction, RewardResult, rewards
from ansatz.rewards.guarded_calls import CallsCancelled, DeadlineMissed, GuardedCalls, await_all
from ansatz.rewards.results import as_results
from ansatz.types import UNGRADED, Problem, Reason, Rollout, Score, ScoredRollout, Verdict

_FOR_CHECK: dict[str, Any] = {"step": 0, "pool": None, "verdicts": (), "all_verdicts": {}}
"""The arguments of a built-in reward, with an empty group, to check its settings."""
_ASYNC_THREADS = 64
"""Problems that are graded at the same time if a reward is asynchronous. Their threads only wait."""
_DEADLINE_S = 600.0
"""Of one call of a user's own reward, if the recipe sets no deadline_s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedReward:
    """guarded: it may never return, so it is called with a deadline of deadline_s seconds; None: no limit. sources: of
    the problems that it applies to (`Problem.origins`); None: all."""

    name: str
    weight: float
    function: RewardFunction
    injected: frozenset[str]
    guarded: bool
    deadline_s: float | None
    sources: frozenset[str] | None

    @property
    def takes_verdicts(self) -> bool:
        return not self.injected.isdisjoint(VERDICTS)


def build_grader(recipe: Mapping[str, Mapping[str, Any]], *, workers: int = 1, timeout_s: float = 1.0) -> RewardGrader:
    """Return the grader of a recipe's `rewards` section: name -> settings, including `weight` (default 1.0).

    A user's own reward and a built-in one that can hang (`judge`, `learned`, `process`) also have `deadline_s`: seconds
    that one call, with all rollouts of a problem, may take. `sources` binds a reward to problems of these sources or
    parts of a mixture; it does not apply to others. workers: processes for algebra, and threads that grade
    different problems. timeout_s: limit of an algebra job.
    Raise ConfigError, before any work, for an unknown reward or setting, a missing setting, or no reward at all.
    """
    if not recipe:
        raise ConfigError(
            "rewards is empty, so there is nothing to learn from. Name one, such as rewards: {math_answer: {}}."
        )
    parts = [_weigh(name, dict(settings)) for name, settings in recipe.items()]
    if all(part.takes_verdicts for part in parts):
        raise _make_ungraded_error(parts[0].name)
    threads = max(workers, _ASYNC_THREADS) if any(map(rewards.is_async, recipe)) else workers
    return RewardGrader(parts, workers, timeout_s, threads=threads)


def _weigh(name: str, settings: dict[str, Any]) -> WeightedReward:
    weight = settings.pop("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
        raise ConfigError(f"rewards.{name}.weight = {weight!r}: expected a finite number.")
    guarded = rewards.can_hang(name)
    deadline_s = settings.pop("deadline_s", _DEADLINE_S if ":" in name else None) if guarded else None
    if deadline_s is not None and not (isinstance(deadline_s, int | float) and 0 < deadline_s < math.inf):
        raise ConfigError(f"rewards.{name}.deadline_s = {deadline_s!r}: expected a number of seconds above 0.")
    sources = sources_of(name, settings)
    settings.pop("sources", None)
    function, injected = rewards.bind(name, settings), rewards.injected(name)
    if ":" not in name:
        function((), **{key: _FOR_CHECK[key] for key in injected})  # a wrong setting fails now, not at step 1
    return WeightedReward(
        name=name,
        weight=float(weight),
        function=function,
        injected=injected,
        guarded=guarded,
        deadline_s=deadline_s,
        sources=sources,
    )


def sources_of(name: str, settings: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the sources that a reward is bound to; None if it applies to all problems."""
    given = settings.get("sources")
    names = cast("list[Any] | None", [given] if isinstance(given, str) else given)
    if names is not None and not (type(names) is list and names and all(isinstance(each, str) for each in names)):
        raise ConfigError(f"rewards.{name}.sources = {given!r}: expected a list of sources, such as [code_tasks].")
    return None if names is None else frozenset(names)


def _make_ungraded_error(name: str) -> ConfigError:
    return ConfigError(
        f"rewards.{name} needs to know which responses are correct, and no other reward grades answers. Add one that "
        "does, such as math_answer (with weight: 0 if it is only needed for this)."
    )


def check_golds(recipe: Mapping[str, Mapping[str, Any]], problems: Sequence[Problem]) -> None:
    """Raise DataError, with the ids of the problems, if a reward of the recipe that applies to them cannot read their
    gold answers."""
    for name, settings in recipe.items():
        if (check := rewards.gold_check(name)) is not None:
            sources = sources_of(name, settings)
            if "packages" in inspect.signature(check).parameters:  # which decides about tests of programs
                check = functools.partial(check, packages=settings.get("packages", False))
            check(problems if sources is None else [each for each in problems if sources & each.origins])


class RewardGrader:
    """Scores rollouts with weighted rewards. Use it as a context manager, or call `close`."""

    def __init__(self, parts: Sequence[WeightedReward], workers: int, timeout_s: float, *, threads: int = 1) -> None:
        self._parts = tuple(sorted(parts, key=lambda part: part.takes_verdicts))  # these last
        self._pool = WorkerPool(ALGEBRA_TARGET, workers=workers, timeout_s=timeout_s)  # runs `algebra.decide`
        self._guard = GuardedCalls()
        # For a call of `score` with several problems. A `GroupSampler` calls it for one group, from threads of its own.
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="grader") if threads > 1 else None
        self.threads = threads

    def score(self, rollouts: Sequence[Rollout], *, step: int = 0) -> list[ScoredRollout]:
        """Return one ScoredRollout per rollout, in the same order. The rollouts of a problem are graded together.

        The verdict comes from the first reward that gives one. If none does, a value above 0 counts as correct. A
        reward that does not apply to a rollout (None) adds nothing to its value.
        Raise RewardError if a reward raises, does not return in time, or returns something other than finite numbers.
        """
        groups: dict[str, list[int]] = {}
        for index, rollout in enumerate(rollouts):
            groups.setdefault(rollout.prompt.problem.id, []).append(index)
        members = [[rollouts[index] for index in indices] for indices in groups.values()]
        grade = functools.partial(self._grade_group, step=step)
        graded = map(grade, members) if self._threads is None else self._threads.map(grade, members)
        scores = dict[int, Score]()
        for indices, of_group in zip(groups.values(), graded, strict=True):
            scores.update(zip(indices, of_group, strict=True))
        return [ScoredRollout(rollout=rollout, score=scores[index]) for index, rollout in enumerate(rollouts)]

    def start(self) -> None:
        """Start the workers if a reward needs them. Otherwise the first answer for algebra would wait for imports."""
        if any("pool" in part.injected for part in self._parts):
            self._pool.start(wait=False)

    def close(self) -> None:
        self._guard.cancel()  # without this, a reward that hangs would keep the threads that wait for it alive
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._pool.close()

    def __enter__(self) -> Grader:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _grade_group(self, group: Sequence[Rollout], step: int) -> list[Score]:
        injected: dict[str, Any] = {"step": step, "pool": self._pool}
        columns: dict[str, Sequence[RewardResult | None]] = {}
        places, origins = range(len(group)), group[0].prompt.problem.origins
        for part in self._parts:
            if part.takes_verdicts and "verdicts" not in injected:
                rows = list(zip(*columns.values(), strict=True))
                verdicts = list(map(_verdict, rows))
                if any(verdict is None and None not in row for verdict, row in zip(verdicts, rows, strict=True)):
                    raise _make_ungraded_error(part.name)
                places = [place for place in places if verdicts[place] is not None]
                injected["verdicts"] = [verdicts[place] for place in places]
                injected["all_verdicts"] = _all_verdicts(columns, places)
            settings = {key: injected[key] for key in part.injected}
            applies = part.sources is None or not part.sources.isdisjoint(origins)
            graded = [group[place] for place in places] if applies else []
            call = self._call_guarded if part.guarded else _call
            results = dict(zip(places, call(part, graded, settings), strict=True)) if graded else {}
            columns[part.name] = [results.get(place) for place in range(len(group))]
        return [
            self._score(rollout, {name: column[index] for name, column in columns.items()})
            for index, rollout in enumerate(group)
        ]

    def _call_guarded(
        self, part: WeightedReward, group: Sequence[Rollout], settings: Mapping[str, Any]
    ) -> Sequence[RewardResult | None]:
        """Return the results of a reward that may raise, hang, or return anything. Raise RewardError for all of
        these."""
        where = f"for problem {group[0].prompt.problem.id!r}"
        try:
            with keep_settings(f"reward {part.name!r}"):  # here, because a thread that hangs would never put it back
                return self._guard.call(lambda: _call(part, group, settings), deadline_s=part.deadline_s)
        except (AnsatzError, KeyboardInterrupt):
            raise
        except DeadlineMissed as error:
            raise RewardError(
                f"reward {part.name!r} has not returned within {part.deadline_s} s {where}. Correct it, or set "
                f"rewards.{part.name}.deadline_s to more seconds."
            ) from error
        except CallsCancelled as error:
            raise RewardError(f"reward {part.name!r} was still running {where} when the grader was closed.") from error
        except BaseException as error:  # also SystemExit: the user's code calls exit()
            raise RewardError(
                f"reward {part.name!r} raised {_describe(error)} {where}. Correct it so that it returns a number for "
                "every response, or None where it does not apply."
            ) from error

    def _score(self, rollout: Rollout, given: Mapping[str, RewardResult | None]) -> Score:
        results = {name: result for name, result in given.items() if result is not None}
        value = sum(part.weight * results[part.name].value for part in self._parts if part.name in results)
        verdict = _verdict(results.values())
        if verdict is None:
            _check_not_left(rollout, results)
            reason = Reason.EQUAL if value > 0 else Reason.DIFFERENT
            verdict = Verdict(correct=value > 0, reason=reason, stage=UNGRADED)
        if rollout.truncated and verdict.reason is Reason.NO_ANSWER:  # an answer could still have followed
            verdict = dataclasses.replace(verdict, reason=Reason.TRUNCATED)
        parts = {name: math.nan if result is None else result.value for name, result in given.items()}
        return Score(value=value, parts=parts, verdict=verdict, steps=self._steps(results))

    def _steps(self, results: Mapping[str, RewardResult]) -> tuple[tuple[int, float], ...]:
        """Return the weighted rewards of the steps; rewards of the whole response are added to the last one."""
        reward_of_end = defaultdict[int, float](float)
        parts = [part for part in self._parts if part.name in results]
        for part in parts:
            for end, reward in results[part.name].steps:
                reward_of_end[end] += part.weight * reward
        if not reward_of_end:
            return ()
        whole = (part.weight * results[part.name].value for part in parts if not results[part.name].steps)
        reward_of_end[max(reward_of_end)] += sum(whole)
        return tuple(sorted(reward_of_end.items()))


def _check_not_left(rollout: Rollout, results: Mapping[str, RewardResult]) -> None:
    """Raise RewardError if a reward left the response to others, and none of them grades answers."""
    for name, result in results.items():
        if result.left_to_others:
            raise RewardError(
                f"reward {name!r} left a response to problem {rollout.prompt.problem.id!r} to the other rewards of the "
                "recipe, and none of them grades answers. Add one that does, such as math_answer."
            )


def _call(part: WeightedReward, group: Sequence[Rollout], settings: Mapping[str, Any]) -> Sequence[RewardResult | None]:
    return as_results(part.name, await_all(part.function(group, **settings)), group)


def _describe(error: BaseException) -> str:
    """Return the error with the innermost place in the code, such as "ValueError: no box (mine.py, line 12)"."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    try:
        message = " ".join(str(error).split())[:200]
    except Exception:  # the class of a user can raise anything
        message = ""
    return f"{type(error).__name__}{': ' if message else ''}{message}{place}"


def _all_verdicts(
    columns: Mapping[str, Sequence[RewardResult | None]], places: Sequence[int]
) -> dict[str, list[Verdict]]:
    """Return the verdicts of each reward that grades every rollout at these places, by its name."""
    verdicts = {
        name: [None if (result := column[place]) is None else result.verdict for place in places]
        for name, column in columns.items()
    }
    return {
        name: [verdict for verdict in column if verdict is not None]
        for name, column in verdicts.items()
        if None not in column
    }


def _verdict(results: Iterable[RewardResult | None]) -> Verdict | None:
    """Return the first verdict among the results of one rollout, None if there is none."""
    return next((result.verdict for result in results if result is not None and result.verdict is not None), None)
