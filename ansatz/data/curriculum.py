"""A curriculum with a memory: which problems a step takes, given what came of them before.

Axes: P problems. Of each the pass rate has a Beta posterior: prior + right and prior + wrong responses, both forgotten
by a factor a step, since the policy moves on. What is chosen is a function of (seed, step, state) alone.

    data:
      curriculum: {sampler: variance, discount: 0.9, drop_after_solved: 3, pause_after_failed: 2, dynamic_sampling: 3}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ansatz.errors import CheckpointError, ConfigError
from ansatz.registry import Registry, bind
from ansatz.types import Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRatePosterior:
    """What a sampler may look at. alpha_P, beta_P: of each problem's Beta posterior. visits_P: steps that took it.
    level_P: rank of its level, 0 the lowest."""

    alpha_P: Floats
    beta_P: Floats
    visits_P: Floats
    level_P: Floats

    @property
    def mean_P(self) -> Floats:
        return self.alpha_P / (self.alpha_P + self.beta_P)


class PromptSampler(Protocol):
    """A key for each problem [P]; those with the smallest keys are taken."""

    def __call__(self, beliefs: PassRatePosterior, rng: np.random.Generator) -> Floats: ...


samplers: Registry[PromptSampler] = Registry("curriculum sampler")


@samplers.register()
def uniform(beliefs: PassRatePosterior, rng: np.random.Generator) -> Floats:
    """At random among those that were taken least often: every problem once an epoch."""
    return beliefs.visits_P + rng.random(len(beliefs.visits_P))


@samplers.register()
def easy_to_hard(beliefs: PassRatePosterior, rng: np.random.Generator) -> Floats:
    """Every problem once an epoch, from the highest pass rate to the lowest; of equal ones the lowest level first."""
    noise_P = rng.random(len(beliefs.visits_P))
    order_P = np.lexsort((noise_P, beliefs.level_P, -beliefs.mean_P, beliefs.visits_P))
    key_P = np.empty(len(order_P))
    key_P[order_P] = np.arange(len(order_P))
    return key_P


@samplers.register()
def one_minus_success(beliefs: PassRatePosterior, rng: np.random.Generator) -> Floats:
    """With probability proportional to 1 - pass rate (Kimi k1.5, arXiv:2501.12599, sec. 2.3.3)."""
    return _proportional_to(1 - beliefs.mean_P, rng)


@samplers.register()
def variance(beliefs: PassRatePosterior, rng: np.random.Generator) -> Floats:
    """With probability proportional to the expected variance of a response's correctness, E[p (1 - p)].

    Of Beta(a, b) that is ab / ((a + b)(a + b + 1)). It is what a group's advantage is made of.
    """
    a_P, b_P = beliefs.alpha_P, beliefs.beta_P
    return _proportional_to(a_P * b_P / ((a_P + b_P) * (a_P + b_P + 1)), rng)


@samplers.register()
def thompson(beliefs: PassRatePosterior, rng: np.random.Generator) -> Floats:
    """A pass rate drawn from each posterior; those nearest to 1/2 are taken, so what is little known gets its turn."""
    return np.abs(rng.beta(beliefs.alpha_P, beliefs.beta_P) - 0.5)


def _proportional_to(weight_P: Floats, rng: np.random.Generator) -> Floats:
    """Keys whose n smallest are a draw without replacement (Efraimidis and Spirakis 2006, algorithm A)."""
    return rng.standard_exponential(len(weight_P)) / np.maximum(weight_P, 1e-300)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurriculumSettings:
    """What a recipe may say under data.curriculum.

    sampler: a name of `samplers`, or `path/to/file.py:function`. discount: what is left of the evidence after a step,
    in (0, 1]. prior: responses of each kind that the posterior starts with.
    drop_after_solved: a problem with all responses right so many times running is taken no more; 0: never.
    pause_after_failed: one with none right so many times running rests for pause_steps steps; 0: never. Where
    nothing else is
    left to take, the resting come back early, and then the retired.
    dynamic_sampling: rounds of further sampling, at most, to replace groups whose rewards are all equal (DAPO's
    dynamic sampling,
    arXiv:2503.14476, sec. 3.2).
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
            raise ConfigError(f"data.curriculum.discount = {self.discount}: expected more than 0, at most 1 (1: none).")
        if not 0 < self.prior < float("inf"):
            raise ConfigError(f"data.curriculum.prior = {self.prior}: expected more than 0, such as 1.0.")
        for name in ("drop_after_solved", "pause_after_failed", "pause_steps", "dynamic_sampling"):
            if getattr(self, name) < 0:
                raise ConfigError(f"data.curriculum.{name} = {getattr(self, name)}: expected 0 or more.")


def curriculum_settings(recipe: Mapping[str, Any]) -> CurriculumSettings:
    """The settings of a recipe's data.curriculum. ConfigError for an unknown or a wrong one."""
    return bind(CurriculumSettings, recipe, what="data.curriculum")()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemOutcome:
    """What came of a problem in a step: right of `responses`."""

    id: str
    right: int
    responses: int


class Curriculum:
    """The memory of a pool of problems. A step calls `take` once or more, then `observe` once, which ends it."""

    def __init__(self, problems: Sequence[Problem], settings: CurriculumSettings, *, seed: int) -> None:
        self.settings, self._problems, self._seed = settings, problems, seed
        size = len(problems)
        self._right_P, self._wrong_P = np.zeros(size), np.zeros(size)
        self._visits_P, self._streak_P, self._rests_until_P = (np.zeros(size, dtype=np.int64) for _ in range(3))
        self._retired_P = np.zeros(size, dtype=np.bool_)
        self._level_P = _level_ranks(problems)
        self._columns = (
            self._right_P,
            self._wrong_P,
            self._visits_P,
            self._streak_P,
            self._rests_until_P,
            self._retired_P,
        )
        self._step, self._round = 0, 0
        self._taken: dict[str, int] = {}

    def take(self, n: int) -> list[int]:
        """Indices of the next n problems, none of them taken in this step before; fewer where there are no more."""
        rng = np.random.default_rng([self._seed, self._step, self._round])
        key_P = samplers.get(self.settings.sampler)(self._beliefs(), rng)
        tier_P = np.where(self._retired_P, 2, np.where(self._rests_until_P > self._step, 1, 0))
        tier_P[list(self._taken.values())] = 3
        order_P = np.lexsort((key_P, np.where(tier_P == 1, self._rests_until_P, 0), tier_P))
        chosen = [int(index) for index in order_P[: min(n, len(order_P) - len(self._taken))]]
        self._taken |= {self._problems[index].id: index for index in chosen}
        self._round += 1
        return chosen

    def observe(self, tried: Iterable[ProblemOutcome], *, on_their_way: Iterable[str] = ()) -> None:
        """Ends the step: forgets a little, learns what came of what it took. ValueError for a problem not taken.

        on_their_way: ids of what a later step will observe; it is not taken again before that.
        """
        self._right_P *= self.settings.discount
        self._wrong_P *= self.settings.discount
        for one in tried:
            if one.id not in self._taken:
                raise ValueError(f"problem {one.id!r} was not taken; observe what `take` gave")
            self._learn(self._taken.pop(one.id), one)
        self._taken = {name: self._taken[name] for name in on_their_way}
        self._step, self._round = self._step + 1, 0

    def metrics(self) -> dict[str, float]:
        """Of the pool, as `track.metrics` defines them."""
        tried_P = self._visits_P > 0
        rests_P = ~self._retired_P & (self._rests_until_P > self._step)
        return {
            "data/tried_frac": float(tried_P.mean()),
            "data/pass_rate": float(self._beliefs().mean_P[tried_P].mean()) if tried_P.any() else 0.5,
            "data/resting_frac": float(rests_P.mean()),
            "data/retired_frac": float(self._retired_P.mean()),
        }

    def state(self) -> dict[str, Any]:
        """JSON; only what was tried takes space."""
        tried = np.flatnonzero(self._visits_P)
        return {
            "settings": asdict(self.settings),
            "step": self._step,
            "round": self._round,
            "taken": list(self._taken.values()),
            "tried": [[int(index), *(column[index].item() for column in self._columns)] for index in tried],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Of a curriculum over the same problems. CheckpointError where its settings are others."""
        if state["settings"] != asdict(self.settings):
            raise CheckpointError(
                f"the checkpoint's data.curriculum is {state['settings']}, this run's is {asdict(self.settings)}. "
                "Resume with the settings of the run that wrote the checkpoint."
            )
        self._step, self._round = int(state["step"]), int(state["round"])
        self._taken = {self._problems[index].id: index for index in state["taken"]}
        for column in self._columns:
            column[:] = 0
        for index, *values in state["tried"]:
            for column, value in zip(self._columns, values, strict=True):
                column[index] = value

    def _learn(self, index: int, one: ProblemOutcome) -> None:
        wrong = one.responses - one.right
        self._right_P[index] += one.right
        self._wrong_P[index] += wrong
        self._visits_P[index] += 1
        streak = int(self._streak_P[index])
        streak = max(streak, 0) + 1 if not wrong else min(streak, 0) - 1 if not one.right else 0
        self._streak_P[index] = streak
        if 0 < self.settings.drop_after_solved <= streak:
            self._retired_P[index] = True
        if 0 < self.settings.pause_after_failed <= -streak:
            self._rests_until_P[index] = self._step + 1 + self.settings.pause_steps

    def _beliefs(self) -> PassRatePosterior:
        return PassRatePosterior(
            alpha_P=self.settings.prior + self._right_P,
            beta_P=self.settings.prior + self._wrong_P,
            visits_P=self._visits_P.astype(np.float64),
            level_P=self._level_P,
        )


def _level_ranks(problems: Sequence[Problem]) -> Floats:
    """Place of each problem's level among all, "2" before "10"; those without a level come first."""
    levels = [problem.level for problem in problems]
    rank = {level: place for place, level in enumerate(sorted(set(levels), key=lambda level: (len(level), level)))}
    return np.array([rank[level] for level in levels], dtype=np.float64)
