"""The weights that sample each step, and the requirements of `rollout.lag` on a recipe.

W_s denotes the weights after step s. The rollouts of step s are sampled with W_v, v = max(0, s - 1 - lag). Example with
lag 2: steps 1, 2 and 3 are sampled with W_0, step 4 with W_1. With lag 0 a step is sampled with the weights that it
updates.

AReaL (arXiv:2505.24298) measured a 1.5B model: with plain PPO its score fell from 42.0 to 23.3 at a lag of 4.
With the ratio taken against the recomputed old policy and the gap to the sampler corrected (decoupled PPO), it kept
41.0 at a lag of 8, and fell to 38.7 at 16.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansatz.config.schema import RolloutSection
from ansatz.errors import ConfigError
from ansatz.objectives.objective import Objective

LARGEST_LAG = 8
"""A larger lag must be requested by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSchedule:
    """lag: steps between the newest weights that could sample a step and the weights that do.

    publish_every: weights are published after every N steps only; versions are rounded down to a multiple of it.
    """

    lag: int = 0
    publish_every: int = 1

    @property
    def live(self) -> bool:
        """True if every step is sampled with the weights that it updates, so that no old weights are needed."""
        return self.lag == 0 and self.publish_every == 1

    @property
    def max_staleness(self) -> int:
        """The largest age, in steps, of the weights that sample a step, compared with the weights that it updates."""
        return self.lag + self.publish_every - 1

    def weights_version_for(self, step: int) -> int:
        """Return the version that samples a step, counted from 1: the step after which its weights were published."""
        return self._published(max(0, step - 1 - self.lag))

    def newest_version_for(self, step: int) -> int:
        """Return the newest version while a step collects rollouts. It samples later rounds and greedy responses."""
        return self._published(step - 1)

    def open_through(self, done: int) -> int:
        """Return the last step whose tickets can be issued once `done` steps are complete."""
        return done + 1 + self.lag

    def publishes(self, version: int) -> bool:
        return version == self._published(version)

    def _published(self, version: int) -> int:
        return version - version % self.publish_every


def schedule_of(rollout: RolloutSection) -> RolloutSchedule:
    return RolloutSchedule(lag=rollout.lag, publish_every=rollout.publish_every)


def check_lag(rollout: RolloutSection, objective: Objective) -> None:
    """Raise ConfigError if the objective cannot learn from rollouts as old as the recipe makes them."""
    staleness = schedule_of(rollout).max_staleness
    if rollout.long_lag and rollout.lag <= LARGEST_LAG:
        raise ConfigError(
            f"rollout.long_lag has no effect with rollout.lag = {rollout.lag}. Remove it, or use a lag above "
            f"{LARGEST_LAG}."
        )
    if staleness > LARGEST_LAG and not rollout.long_lag:
        raise ConfigError(
            f"rollout.lag = {rollout.lag} with rollout.publish_every = {rollout.publish_every}: rollouts would be up "
            f"to {staleness} steps old, and above {LARGEST_LAG} training gets worse whatever the correction. Use a "
            "smaller lag, or accept it with rollout.long_lag: true."
        )
    if staleness == 0:
        return
    key = f"rollout.lag = {rollout.lag}" if rollout.lag else f"rollout.publish_every = {rollout.publish_every}"
    if not objective.corrects_mismatch:
        raise ConfigError(
            f"{key}: rollouts would be up to {staleness} steps old, and {objective.preset} has no correction for "
            "that; training can then fail completely while its metrics look healthy. Add algorithm.correction: "
            "truncate. The ratio is then clipped against the recomputed old policy, and each token is weighted by "
            "old / behavior, at most 2 (decoupled)."
        )
    if objective.anchor == "behavior":
        raise ConfigError(
            f"{key} with algorithm.anchor = behavior: the ratio would be clipped against weights that are up to "
            f"{staleness} steps old. Set algorithm.anchor: old, so that it is clipped against the recomputed old "
            "policy."
        )


def explain_lag(rollout: RolloutSection) -> list[str]:
    """Return the lag and its effect, in a sentence; nothing without one."""
    schedule = schedule_of(rollout)
    if schedule.live:
        return []
    rounding = ""
    if schedule.publish_every > 1:
        rounding = f", rounded down to a multiple of {schedule.publish_every}"
    return [
        f"Lag {schedule.lag}: the rollouts of step s are sampled with the weights after step max(0, s - "
        f"{schedule.lag + 1}){rounding}, so they are up to {schedule.max_staleness} "
        f"{'step' if schedule.max_staleness == 1 else 'steps'} old when the step learns from them."
    ]
