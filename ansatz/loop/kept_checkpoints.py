"""Which checkpoints of a stage are kept besides the newest ones: the best, and those that a rollback may need."""

from __future__ import annotations

from collections.abc import Sequence


def rollback_target(steps: Sequence[int], *, first_bad_step: int) -> int:
    """The step of the newest checkpoint from before the bad steps; 0, the start of the stage, if there is none.

    The policy of the checkpoint of step c samples the rollouts of step c + 1, so c + 1 must come before the first bad
    step. steps: those that have a checkpoint, in rising order.
    """
    return max((step for step in steps if step + 1 < first_bad_step), default=0)


def steps_for_rollback(steps: Sequence[int], *, step: int, window: int, near_best: int) -> set[int]:
    """The checkpoints to keep for rollbacks after `step`, by alarms over at most `window` steps: up to three of them.

    The first is the one that an alarm in the next step would return to. The second is the oldest of those that are
    still too new for this: without it, frequent checkpoints would be removed before they are old enough, and the first
    would never be replaced. The third is the one that an alarm about a metric that falls would return to.
    near_best: the first step of the last window in which that metric was near its best; 0 without one.
    """
    old_enough = [known for known in steps if known + 1 < step + 2 - window]
    newer = [known for known in steps if known + 1 >= step + 2 - window]
    before_fall = [known for known in steps if known < near_best]
    return {*old_enough[-1:], *newer[:1], *before_fall[-1:]}
