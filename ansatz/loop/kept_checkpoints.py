"""The checkpoints of a stage that are kept besides the newest ones: the best, and some for rollbacks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from ansatz.track.checked_rows import read_evaluations
from ansatz.track.runs import best_evaluation
from ansatz.train import checkpoint


def rollback_target(steps: Sequence[int], *, first_bad_step: int) -> int:
    """Return the step of the newest checkpoint from before the bad steps; 0, the start of the stage, if there is none.

    The policy of the checkpoint of step c samples the rollouts of step c + 1, so c + 1 must come before the first bad
    step. steps: the steps with a checkpoint, in rising order.
    """
    return max((step for step in steps if step + 1 < first_bad_step), default=0)


def steps_for_rollback(steps: Sequence[int], *, step: int, window: int, near_best: int) -> set[int]:
    """Return the checkpoints to keep for rollbacks after `step`, by alarms over at most `window` steps: up to three.

    The first is the target of an alarm in the next step. The second is the oldest one that is still too new for this:
    without it, frequent checkpoints would be removed before they are old enough, and the first would never be replaced.
    The third is the target of an alarm about a metric that falls. near_best: the first step of the last window with
    that metric near its best; 0 without one.
    """
    old_enough = [known for known in steps if known + 1 < step + 2 - window]
    newer = [known for known in steps if known + 1 >= step + 2 - window]
    before_fall = [known for known in steps if known < near_best]
    return {*old_enough[-1:], *newer[:1], *before_fall[-1:]}


def best_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of a stage with the best held-out score; None if no checkpoint has been evaluated."""
    steps = best_step(folder, _steps(folder))
    return checkpoint.path_of(folder, steps.pop()) if steps else None


def is_best(folder: Path, step: int) -> bool:
    """Tell whether the policy after a step is evaluated, and better than at all steps with a checkpoint."""
    return step in best_step(folder, {*_steps(folder), step})


def best_step(folder: Path, steps: Collection[int]) -> set[int]:
    """Return the step with the best held-out score of the stage; empty if none of these steps has been evaluated."""
    rows = read_evaluations(folder / "evaluations.jsonl")
    best = best_evaluation((row for row in rows if row["stage"] == folder.name), steps)
    return set() if best is None else {best["step"]}


def _steps(folder: Path) -> list[int]:
    return [checkpoint.step_of(path) for path in checkpoint.list_checkpoints(folder)]
