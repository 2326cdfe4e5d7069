"""A curriculum with memory: selects the problems of a step by the outcomes of earlier steps.

Axes: P problems. Each problem has a Beta posterior over its pass rate, with parameters prior + correct responses and
prior + wrong responses. Both counts decay by a factor per step, because the policy changes. The selection depends only
on (seed, step, state).

    data:
      curriculum: {sampler: variance, discount: 0.9, drop_after_solved: 3, pause_after_failed: 2, dynamic_sampling: 3}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ansatz.errors import CheckpointError, ConfigError
from ansatz.registry import Registry, bind, check_result
from ansatz.types import Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRatePosterior:
    """The input of a curriculum sampler.

    alpha_P, beta_P: parameters of each problem's Beta posterior. visits_P: number of steps that took the problem.
    level_P: rank of the problem's level; 0 is the lowest.
    """

    alpha_P: Floats
    beta_P: Floats
    visits_P: Floats
    level_P: Floats

    @property
    def mean_P(self) -> Floats:
        return self.alpha_P / (self.alpha_P + self.beta_P)


PromptSampler = Callable[[PassRatePosterior, np.random.Generator], Floats]
"""Returns a key for each problem [P]; the problems with the smallest keys are taken."""

samplers: Registry[PromptSampler] = Registry("curriculum sampler")


@samplers.register()
def uniform(posterior: PassRatePosterior, rng: np.random.Generator) -> Floats:
    """Take problems at random among those that were taken least often: every problem once per epoch."""
    return posterior.visits_P + rng.random(len(posterior.visits_P))


@samplers.register()
def easy_to_hard(posterior: PassRatePosterior, rng: np.random.Generator) -> Floats:
    """Take every problem once per epoch, from the highest pass rate to the lowest; ties go to the lower level."""
    noise_P = rng.random(len(posterior.visits_P))
    order_P = np.lexsort((noise_P, posterior.level_P, -posterior.mean_P, posterior.visits_P))
    key_P = np.empty(len(order_P))
    key_P[order_P] = np.arange(len(order_P))
    return key_P


@samplers.register()
def one_minus_success(posterior: PassRatePosterior, rng: np.random.Generator) -> Floats:
    """Take problems with probability proportional to 1 - pass rate (Kimi k1.5, arXiv:2501.12599, sec. 2.3.3)."""
    return _proportional_to(1 - posterior.mean_P, rng)


@samplers.register()
def variance(posterior: PassRatePosterior, rng: np.random.Generator) -> Floats:
    """Take problems with probability proportional to the expected variance of a response's correctness, E[p (1 - p)].

    For Beta(a, b) this is ab / ((a + b)(a + b + 1)). Without variance within a group, all its advantages are 0.
    """
    a_P, b_P = posterior.alpha_P, posterior.beta_P
    return _proportional_to(a_P * b_P / ((a_P + b_P) * (a_P + b_P + 1)), rng)


@samplers.register()
def thompson(posterior: PassRatePosterior, rng: np.random.Generator) -> Floats:
    """Draw a pass rate from each posterior and take those nearest to 1/2 (Thompson sampling), which also explores."""
    return np.abs(rng.beta(posterior.alpha_P, posterior.beta_P) - 0.5)


def _proportional_to(weight_P: Floats, rng: np.random.Generator) -> Floats:
    """Draw keys whose n smallest are a weighted sample without replacement (Efraimidis and Spirakis 2006, algorithm
    A)."""
    return rng.standard_exponential(len(weight_P)) / np.maximum(weight_P, 1e-300)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurriculumSettings:
    """The settings of a recipe's data.curriculum.

    sampler: a name in `samplers`, or `path/to/file.py:function`.
    discount: decay factor in (0, 1] of the counts of correct and wrong responses per step; 1 keeps them.
    prior: number of correct and of wrong responses that the posterior starts with.
    drop_after_solved: drop a problem after N consecutive visits with only correct responses; 0: never.
    pause_after_failed: pause a problem for `pause_steps` steps after N consecutive visits without a correct response;
    0: never. If a step has nothing else to take, paused problems return early, and then dropped ones.
    pause_steps: length of such a pause, in steps.
    dynamic_sampling: maximum number of extra sampling rounds per step that replace groups whose rewards are all equal
    (arXiv:2503.14476, sec. 3.2); 0: off.
    """

    sampler: str = "uniform"
    discount: float = 1.0
    prior: float = 1.0
    drop_after_solved: int = 0
    pause_after_failed: int = 0
    pause_steps: int = 20
    dynamic_sampling: int = 0

    def __post_init__(self) -> None:
        samplers.get(self.sampler)
        if not 0 < self.discount <= 1:
            raise ConfigError(
                f"data.curriculum.discount = {self.discount}: expected a number above 0 and at most 1 (1: no decay)."
            )
        if not 0 < self.prior < float("inf"):
            raise ConfigError(f"data.curriculum.prior = {self.prior}: expected a finite number above 0, such as 1.0.")
        for name in ("drop_after_solved", "pause_after_failed", "pause_steps", "dynamic_sampling"):
            if getattr(self, name) < 0:
                raise ConfigError(f"data.curriculum.{name} = {getattr(self, name)}: expected 0 or more.")


def curriculum_settings(recipe: Mapping[str, Any]) -> CurriculumSettings:
    """Return the settings of a recipe's data.curriculum. Raise ConfigError for an unknown setting or a wrong value."""
    return bind(CurriculumSettings, recipe, what="data.curriculum")()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemOutcome:
    """The outcome of a problem in a step: `correct` of `responses` responses were correct."""

    id: str
    correct: int
    responses: int


class Curriculum:
    """The memory of a pool of problems. A step calls `take` one or more times and ends with one call of `observe`."""

    def __init__(self, problems: Sequence[Problem], settings: CurriculumSettings, *, seed: int) -> None:
        self.settings, self._problems, self._seed = settings, problems, seed
        size = len(problems)
        self._correct_P, self._wrong_P = np.zeros(size), np.zeros(size)
        # _streak_P: consecutive visits, positive if every response was correct, negative if none was.
        self._visits_P, self._streak_P, self._paused_until_P = (np.zeros(size, dtype=np.int64) for _ in range(3))
        self._dropped_P = np.zeros(size, dtype=np.bool_)
        self._level_P = _level_ranks(problems)
        self._columns = (
            self._correct_P,
            self._wrong_P,
            self._visits_P,
            self._streak_P,
            self._paused_until_P,
            self._dropped_P,
        )
        self._step, self._round = 0, 0
        self._taken: dict[str, int] = {}

    def take(self, n: int) -> list[int]:
        """Return the indices of the next n problems that this step has not taken yet; fewer if the pool has fewer
        left."""
        rng = np.random.default_rng([self._seed, self._step, self._round])
        sampler = samplers.get(self.settings.sampler)
        key_P = sampler(self._posterior(), rng)
        expected = f"{len(self._problems)} finite numbers, one per problem"
        check_result(sampler, key_P, is_right=lambda: _are_numbers(key_P, len(self._problems)), expected=expected)
        tier_P = np.where(self._dropped_P, 2, np.where(self._paused_until_P > self._step, 1, 0))
        tier_P[list(self._taken.values())] = 3
        order_P = np.lexsort((key_P, np.where(tier_P == 1, self._paused_until_P, 0), tier_P))
        indices = [int(index) for index in order_P[: min(n, len(order_P) - len(self._taken))]]
        self._taken |= {self._problems[index].id: index for index in indices}
        self._round += 1
        return indices

    def observe(self, outcomes: Iterable[ProblemOutcome], *, pending: Iterable[str] = ()) -> None:
        """End the step: decay the counts, then add the outcomes. Raise ValueError for a problem that was not taken.

        pending: ids of taken problems whose outcome a later step will observe; they are not taken again before that.
        """
        self._correct_P *= self.settings.discount
        self._wrong_P *= self.settings.discount
        for outcome in outcomes:
            if outcome.id not in self._taken:
                raise ValueError(f"problem {outcome.id!r} was not taken; observe only problems that `take` returned")
            self._learn(self._taken.pop(outcome.id), outcome)
        self._taken = {problem_id: self._taken[problem_id] for problem_id in pending}
        self._step, self._round = self._step + 1, 0

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the pool; `track.metrics` defines them."""
        tried_P = self._visits_P > 0
        paused_P = ~self._dropped_P & (self._paused_until_P > self._step)
        return {
            "data/tried_frac": float(tried_P.mean()),
            "data/pass_rate": float(self._posterior().mean_P[tried_P].mean()) if tried_P.any() else 0.5,
            "data/paused_frac": float(paused_P.mean()),
            "data/dropped_frac": float(self._dropped_P.mean()),
        }

    def state(self) -> dict[str, Any]:
        """Return the state as a JSON object. Problems that were never tried take no space."""
        tried = np.flatnonzero(self._visits_P)
        return {
            "settings": asdict(self.settings),
            "step": self._step,
            "round": self._round,
            "taken": list(self._taken.values()),
            "tried": [[int(index), *(column[index].item() for column in self._columns)] for index in tried],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a curriculum over the same problems. Raise CheckpointError if the settings differ."""
        if state["settings"] != asdict(self.settings):
            raise CheckpointError(
                f"the checkpoint's data.curriculum is {state['settings']}, but this run's is "
                f"{asdict(self.settings)}. Resume with the settings of the run that wrote the checkpoint."
            )
        self.inherit(state)
        self._round = int(state["round"])
        self._taken = {self._problems[index].id: index for index in state["taken"]}

    def inherit(self, state: Mapping[str, Any]) -> None:
        """Begin with the knowledge of a finished curriculum over the same problems, whatever its settings were: the
        counts of correct and wrong responses, visits, pauses and dropped problems."""
        self._step = int(state["step"])  # pauses end at a step
        for column in self._columns:
            column[:] = 0
        for index, *values in state["tried"]:
            for column, value in zip(self._columns, values, strict=True):
                column[index] = value

    def _learn(self, index: int, outcome: ProblemOutcome) -> None:
        wrong = outcome.responses - outcome.correct
        self._correct_P[index] += outcome.correct
        self._wrong_P[index] += wrong
        self._visits_P[index] += 1
        streak = int(self._streak_P[index])
        streak = max(streak, 0) + 1 if not wrong else min(streak, 0) - 1 if not outcome.correct else 0
        self._streak_P[index] = streak
        if 0 < self.settings.drop_after_solved <= streak:
            self._dropped_P[index] = True
        if 0 < self.settings.pause_after_failed <= -streak:
            self._paused_until_P[index] = self._step + 1 + self.settings.pause_steps

    def _posterior(self) -> PassRatePosterior:
        return PassRatePosterior(
            alpha_P=self.settings.prior + self._correct_P,
            beta_P=self.settings.prior + self._wrong_P,
            visits_P=self._visits_P.astype(np.float64),
            level_P=self._level_P,
        )


def _are_numbers(values: Any, count: int) -> bool:
    try:
        numbers = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        return False
    return numbers.shape == (count,) and bool(np.isfinite(numbers).all())


def _level_ranks(problems: Sequence[Problem]) -> Floats:
    """Return the rank of each problem's level, with "2" before "10". Problems without a level come first."""
    levels = [problem.level for problem in problems]
    rank = {level: index for index, level in enumerate(sorted(set(levels), key=lambda level: (len(level), level)))}
    return np.array([rank[level] for level in levels], dtype=np.float64)
