"""Rewards of a user, for runs that need a signal, are interrupted, or fail."""

import time
from pathlib import Path

from ansatz.rewards.base import RewardResult


def every_other(rollouts):
    return [RewardResult(value=float(rollout.sample % 2)) for rollout in rollouts]


def all_equal(rollouts):
    return [RewardResult(value=0.5) for _ in rollouts]


def huge(rollouts):
    return [RewardResult(value=3e38 * (-1) ** rollout.sample) for rollout in rollouts]


def huge_at(rollouts, *, step, at):
    return huge(rollouts) if step == at else every_other(rollouts)


def not_a_number(rollouts):
    return [RewardResult(value=float("nan")) for _ in rollouts]


def interrupts(rollouts, *, step, at, unless):
    """A signal. Raises KeyboardInterrupt at one step unless the file `unless` exists."""
    if step == at and not Path(unless).exists():
        raise KeyboardInterrupt
    return every_other(rollouts)


def waits(rollouts, *, step, at, unless):
    """The values of `every_other`. At one step it does not return until the file `unless` exists.

    The file `unless`.waiting says that it hangs.
    """
    while step == at and not Path(unless).exists():
        Path(f"{unless}.waiting").touch()
        time.sleep(0.05)
    return every_other(rollouts)


def nothing_at(rollouts, *, step, at, unless):
    """The values of `every_other`, but None at one step unless the file `unless` exists."""
    return None if step == at and not Path(unless).exists() else every_other(rollouts)
