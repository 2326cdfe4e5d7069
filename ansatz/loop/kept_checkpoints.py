"""Which checkpoints of a stage are kept besides the newest ones: the best, and those that a rollback may need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from ansatz.track.checked_rows import evaluation_rows
from ansatz.track.jsonl import read_jsonl
from ansatz.track.runs import best_evaluation
from ansatz.train import checkpoint


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


def best_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of a stage with the best held-out score; None if no checkpoint has been evaluated."""
    steps = best_step(folder, _steps(folder))
    return checkpoint.path_of(folder, steps.pop()) if steps else None


def is_best(folder: Path, step: int) -> bool:
    """Tell whether the policy after a step is evaluated, and better than all of which the stage has a checkpoint."""
    return step in best_step(folder, {*_steps(folder), step})


def best_step(folder: Path, steps: Collection[int]) -> set[int]:
    """Return the step with the best held-out score of the stage; empty if none of these steps has been evaluated."""
    path = folder / "evaluations.jsonl"
    rows = [row for row in evaluation_rows(read_jsonl(path), path) if row["stage"] == folder.name]
    best = best_evaluation(rows, steps)
    return set() if best is None else {best["step"]}


def _steps(folder: Path) -> list[int]:
    return [checkpoint.step_of(path) for path in checkpoint.list_checkpoints(folder)]
