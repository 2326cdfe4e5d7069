"""Checks the reward that an environment gave for a response. A wrong one is a failure that says whose it is."""

from __future__ import annotations

from typing import Any

from ansatz.errors import RewardError
from ansatz.rewards.base import RewardResult
from ansatz.rewards.results import checked_result
from ansatz.types import EnvironmentReward, Reason, Verdict
from ansatz.visible import error_text

STAGE = "environment"
"""`Verdict.stage` of the reward `environment`."""


def reward_of(name: str, given: Any) -> EnvironmentReward | None:
    """Return the reward that `reward()` of the environment gave. None: it leaves the reward to the recipe.

    A number outside [0, 1], and anything that is neither a number nor a RewardResult, is a failure.
    """
    if given is None:
        return None
    try:
        result = checked_result(given, what="reward() returned", where="its problem")
    except RewardError as error:
        return failed_reward(name, error_text(error), Reason.CRASHED)
    except Exception as error:  # the class of a user can raise anything while it is read
        what = f"{type(error).__name__}: {error_text(error)}"
        return failed_reward(name, f"reward() returned an unreadable value ({what:.200})", Reason.CRASHED)
    if not isinstance(given, RewardResult) and not 0 <= result.value <= 1:
        return failed_reward(name, f"reward() returned {result.value:g}, expected a number in [0, 1]", Reason.CRASHED)
    return EnvironmentReward(value=result.value, verdict=result.verdict, steps=result.steps)


def failed_reward(name: str, explanation: str, reason: Reason) -> EnvironmentReward:
    """Return a response whose environment gave no reward. reason: TIMEOUT or CRASHED."""
    verdict = Verdict(correct=False, reason=reason, stage=STAGE)
    return EnvironmentReward(value=0.0, verdict=verdict, explanation=f"environment {name!r}: {explanation}")
