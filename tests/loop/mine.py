"""Rewards of a user's own, for runs that must have a signal, break off, or go wrong."""

from pathlib import Path

from ansatz.rewards.base import RewardResult


def every_other(rollouts):
    return [RewardResult(value=float(one.sample % 2)) for one in rollouts]


def huge(rollouts):
    return [RewardResult(value=3e38 * (-1) ** one.sample) for one in rollouts]


def no_number(rollouts):
    return [RewardResult(value=float("nan")) for _ in rollouts]


def breaks_off(rollouts, *, step, at, unless):
    """A signal; raises at one step while there is no file `unless`."""
    if step == at and not Path(unless).exists():
        raise KeyboardInterrupt
    return every_other(rollouts)
