"""Rewards of a user, for runs that need a signal, are interrupted, or fail."""

import os
import tempfile
import time
from pathlib import Path

import torch

from ansatz.rewards.base import RewardResult
from ansatz.types import Reason, Verdict


def every_other(rollouts):
    """A grader, to which the samples with odd numbers are correct."""
    return [graded(rollout.sample % 2 == 1) for rollout in rollouts]


def graded(correct):
    verdict = Verdict(correct=correct, reason=Reason.EQUAL if correct else Reason.DIFFERENT)
    return RewardResult(value=float(correct), verdict=verdict)


def all_equal(rollouts):
    return [RewardResult(value=0.5) for _ in rollouts]


def huge(rollouts):
    return [RewardResult(value=3e38 * (-1) ** rollout.sample) for rollout in rollouts]


def huge_at(rollouts, *, step, at):
    return huge(rollouts) if step == at else every_other(rollouts)


def not_a_number(rollouts):
    return [RewardResult(value=float("nan")) for _ in rollouts]


def settles(rollouts, *, changes):
    """The values of `every_other`. changes: settings of the whole process, which stay changed."""
    if changes:
        torch.set_default_dtype(torch.float64)
        torch.set_float32_matmul_precision("medium")
        os.chdir(tempfile.gettempdir())
    return every_other(rollouts)


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


def long_enough(rollouts, *, tokens=4):
    """A verifier: correct with at least this number of tokens."""
    verdicts = [Verdict(correct=rollout.num_tokens >= tokens, reason=Reason.DIFFERENT) for rollout in rollouts]
    return [RewardResult(value=float(verdict.correct), verdict=verdict) for verdict in verdicts]


class Brevity:
    """A reward model that can be hacked: short responses have the best scores, correct or not."""

    def score(self, rollouts):
        return [-rollout.num_tokens / 4 for rollout in rollouts]
