"""What `rollout.lag` asks of a recipe, and what it means in words.

AReaL (arXiv:2505.24298) measured a 1.5B model: with plain PPO its score fell from 42.0 to 23.3 at a lag of 4.
With the ratio taken against the recomputed old policy and the gap to the sampler corrected (decoupled PPO), it kept
41.0 at a lag of 8, and fell to 38.7 at 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansatz.config.schema import Config
from ansatz.errors import ConfigError
from ansatz.loop.rollout_queue import RolloutQueue
from ansatz.loop.schedule import RolloutSchedule
from ansatz.loop.training_stage import TrainingStage
from ansatz.objectives.objective import Objective

LARGEST_LAG = 8
"""A larger lag must be requested by name."""


def schedule_of(config: Config) -> RolloutSchedule:
    return RolloutSchedule(lag=config.rollout.lag, publish_every=config.rollout.publish_every)


def check_lag(config: Config, objective: Objective) -> None:
    """ConfigError if the objective cannot learn from rollouts as old as the recipe makes them."""
    rollout, staleness = config.rollout, schedule_of(config).max_staleness
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


def check_sampler(stage: TrainingStage, queue: RolloutQueue, batch: Any, *, step: int) -> Mapping[str, float]:
    """Compare the sampler with the trainer on tokens of older weights, which are loaded for one microbatch.

    Tokens of the current weights are compared by the update itself (`train.alignment`), but with a lag there are none.
    Returns the metrics; none if the current weights have sampled the step. AlignmentError if they disagree.
    """
    load = queue.sampled_with(step)
    return {} if load is None else stage.trainer.check_against(load, batch, step=step)


def explain_lag(config: Config) -> list[str]:
    """The lag and what follows from it, in a sentence; nothing without one."""
    schedule = schedule_of(config)
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
