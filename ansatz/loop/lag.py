"""The weights that sample each step, and the requirements of `rollout.lag` on a recipe.

W_s denotes the weights after step s. The rollouts of step s are sampled with W_v, v = max(0, s - 1 - lag). Example with
lag 2: steps 1, 2 and 3 are sampled with W_0, step 4 with W_1. With lag 0 a step is sampled with the weights that it
updates.

AReaL (arXiv:2505.24298) measured a 1.5B model: with plain PPO its score fell from 42.0 to 23.3 at a lag of 4.
With the ratio taken against the recomputed old policy and the gap to the sampler corrected (decoupled PPO), it kept
41.0 at a lag of 8, and fell to 38.7 at 16.
"""

from __future__ import annotations

from ansatz.config.schema import RolloutSection
from ansatz.errors import ConfigError
from ansatz.objectives.objective import Objective

LARGEST_LAG = 8


def weights_version_for(step: int, *, lag: int) -> int:
    """Return the version that samples a step, counted from 1: the step after which its weights were published.

    Example: `weights_version_for(4, lag=2)` is 1.
    """
    return max(0, step - 1 - lag)


def check_lag(rollout: RolloutSection, objective: Objective) -> None:
    """Raise ConfigError if the objective cannot learn from rollouts as old as the recipe makes them."""
    if rollout.lag > LARGEST_LAG:
        raise ConfigError(
            f"rollout.lag = {rollout.lag}: above {LARGEST_LAG} training gets worse, whatever the correction. Use at "
            f"most {LARGEST_LAG}."
        )
    if rollout.lag == 0:
        return
    key = f"rollout.lag = {rollout.lag}"
    if not objective.corrects_mismatch:
        raise ConfigError(
            f"{key}: rollouts would be up to {rollout.lag} steps old, and {objective.preset} has no correction for "
            "that; training can then fail completely while its metrics look healthy. Add algorithm.correction: "
            "truncate. The ratio is then clipped against the recomputed old policy, and each token is weighted by "
            "old / behavior, at most 2 (decoupled)."
        )
    if objective.anchor == "behavior":
        raise ConfigError(
            f"{key} with algorithm.anchor = behavior: the ratio would be clipped against weights that are up to "
            f"{rollout.lag} steps old. Set algorithm.anchor: old, so that it is clipped against the recomputed old "
            "policy."
        )


def explain_lag(rollout: RolloutSection) -> list[str]:
    """Return the lag and its effect, in a sentence; nothing without one."""
    if rollout.lag == 0:
        return []
    return [
        f"Lag {rollout.lag}: the rollouts of step s are sampled with the weights after step max(0, s - "
        f"{rollout.lag + 1}), so they are up to {rollout.lag} {'step' if rollout.lag == 1 else 'steps'} old when the "
        "step learns from them."
    ]
