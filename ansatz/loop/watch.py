"""The watchdog of a stage at work: reports alarms as they happen, lowers the learning rate, rolls back, stops.

`track.watchdog` decides what to do. A rollback is a record on disk (`track.rollbacks`), and then the stage resumes like
any run: later checkpoints are removed, and the stage starts again from the newest one that is left. A kill at any
moment therefore leads to the same run: before the record is written, the resumed run decides again; after that, it
starts from the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansatz.config.stage_list import derived_seed
from ansatz.config.watchdog import WatchdogSection
from ansatz.errors import CheckpointError, RunStopped
from ansatz.track.base import TrackerLike
from ansatz.track.rollbacks import Rollback, read_rollbacks, set_aside, write_rollbacks
from ansatz.track.rules import rules_of
from ansatz.track.watchdog import WatchDecision, WatchState, observe
from ansatz.train import checkpoint
from ansatz.train.trainer import Checkpointed, Trainer, trains_policy

STATE = "watchdog"
"""The key of the watchdog's state in a checkpoint."""


class RolledBack(Exception):
    """The stage must start again from the newest checkpoint in its folder. Steps after it are set aside."""


def apply_rollbacks(folder: Path) -> Sequence[Rollback]:
    """Remove the files that the last rollback dropped, if a kill or the rollback itself has left some. Return all.

    Raise CheckpointError if the target checkpoint and all later ones are gone.
    """
    rollbacks = read_rollbacks(folder)
    if rollbacks:
        to_step, kept = rollbacks[-1].to_step, 0
        for path in checkpoint.list_checkpoints(folder):
            if checkpoint.step_of(path) > to_step and _rollbacks_before(path) < len(rollbacks):
                checkpoint.remove(path)
            else:
                kept = checkpoint.step_of(path)
        if kept < to_step:  # the stage would repeat earlier steps with the learning rate and noise of later ones
            newest = f"the newest is of step {kept}" if kept else "there is none"
            raise CheckpointError(
                f"{folder / 'checkpoints'}: expected a checkpoint of step {to_step} or later, because the stage was "
                f"rolled back to that step (rollbacks.json); {newest}. Restore it from a backup, or start the stage "
                "anew by removing its folder."
            )
        set_aside(folder, rollbacks)
    return rollbacks


def _rollbacks_before(path: Path) -> int:
    """Return the number of rollbacks of the stage at the time when the checkpoint was written."""
    return int(checkpoint.loop_state(path).get(STATE, {}).get("rollbacks", 0))


def start_watch(
    section: WatchdogSection,
    folder: Path,
    trainer: Checkpointed,
    tracker: TrackerLike,
    rollbacks: Sequence[Rollback],
    saved: Mapping[str, Any],
) -> StageWatch | None:
    """Return the watchdog of a stage; None if the trainer has no policy.

    rollbacks: all of the stage so far. saved: the state of the stage in the checkpoint that is resumed; else empty.
    """
    if not trains_policy(trainer):
        return None
    state = _state_after(rollbacks, saved.get(STATE))
    return StageWatch(section, folder=folder, trainer=trainer, tracker=tracker, state=state)


def _state_after(rollbacks: Sequence[Rollback], saved: Mapping[str, Any] | None) -> WatchState:
    """Return the state at the start of a stage. saved: in the checkpoint; None at the start or without a watchdog."""
    state = WatchState() if saved is None else WatchState.from_json(saved)
    if len(rollbacks) <= state.rollbacks:
        return state
    last = rollbacks[-1]  # the stage starts for the first time after it, or again after a kill
    return replace(state, lr_scale=last.lr_scale, attempts=last.attempts, rollbacks=len(rollbacks))


def noise_seed(seed: int, rollbacks: int) -> int:
    """Return the seed of sampling and minibatches. Each rollback changes it, so that other rollouts are sampled."""
    return derived_seed(seed, "rollback", rollbacks) if rollbacks else seed


class StageWatch:
    """Judges the metrics of a stage in `folder` from `state` on. Sets the scale of the trainer's learning rate."""

    def __init__(
        self,
        section: WatchdogSection,
        *,
        folder: Path,
        trainer: Trainer[Any],
        tracker: TrackerLike,
        state: WatchState,
    ) -> None:
        self.state = state
        self._section, self._rules = section, rules_of(section)
        self._folder, self._trainer, self._tracker = folder, trainer, tracker
        self._pending: WatchDecision | None = None
        trainer.set_lr_scale(state.lr_scale)

    def added_to(self, stage_state: Callable[[], Mapping[str, Any]]) -> Callable[[], dict[str, Any]]:
        """Return a function that makes the state of the stage with the present state of the watchdog in it."""
        state = self.state
        return lambda: {**stage_state(), STATE: state.to_json()}

    @property
    def can_roll_back(self) -> bool:
        return any(rule.action == "rollback" for rule in self._rules) and self._section.attempts > 0

    def checkpoints_to_keep(self, steps: Sequence[int]) -> set[int]:
        """Return the checkpoints that a later rollback may return to. steps: in rising order; the last is current."""
        if not self.can_roll_back:
            return set()
        rules = [rule for rule in self._rules if rule.action == "rollback"]
        known = [self.state.rules[rule.name].near_best for rule in rules if rule.name in self.state.rules]
        return steps_for_rollback(
            steps,
            step=steps[-1],
            window=max(rule.window for rule in rules),
            near_best=min((step for step in known if step), default=0),
        )

    def observe(self, step: int, metrics: Mapping[str, float]) -> None:
        """Judge the metrics of a step. Alarms become events at once; a rollback or a stop waits for the step edge."""
        decision = observe(self._rules, self._section, self.state, step, metrics)
        for finding in decision.findings:
            kind = "recovered" if finding.is_over else "alarm"
            advice = "" if finding.is_over or not finding.rule.advice else f" {finding.rule.advice}"
            self._tracker.event(step, kind, finding.text + advice, **finding.numbers)
        if decision.action == "rollback":  # the rules' states return to their states in the checkpoint
            self._pending = decision
            return
        self.state = decision.state
        if decision.action == "stop":
            self._pending = decision
        elif decision.action == "lower_lr":
            self._trainer.set_lr_scale(self.state.lr_scale)
            assert decision.cause is not None
            text = (
                f"the learning rate is {self.state.lr_scale:.3g} times that of the recipe from now on "
                f"(attempt {self.state.attempts} of {self._section.attempts})."
            )
            self._tracker.event(step, "lower_lr", text, rule=decision.cause.rule.name, lr_scale=self.state.lr_scale)

    def roll_back_if_due(self, step: int) -> None:
        """Record the rollback that the metrics of this step ask for, and raise RolledBack."""
        decision = self._pending
        if decision is None or decision.action != "rollback":
            return
        assert decision.cause is not None
        paths = checkpoint.list_checkpoints(self._folder)
        steps = [checkpoint.step_of(path) for path in paths if checkpoint.is_resumable(path)]
        target = rollback_target(steps, first_bad_step=decision.first_bad_step)
        rollback = Rollback(
            from_step=step,
            to_step=target,
            rule=decision.cause.rule.name,
            lr_scale=decision.state.lr_scale,
            attempts=decision.state.attempts,
        )
        place = f"the checkpoint of step {target}" if target else "the start of the stage"
        text = (
            f"back to {place}, with {rollback.lr_scale:.3g} times the learning rate of the recipe and other noise "
            f"(attempt {rollback.attempts} of {self._section.attempts})."
        )
        numbers = {"rule": rollback.rule, "to_step": float(target), "lr_scale": rollback.lr_scale}
        self._tracker.event(step, "rollback", text, **numbers)
        self._tracker.flush()  # the rows that are set aside are moved from the files
        write_rollbacks(self._folder, [*read_rollbacks(self._folder), rollback])
        raise RolledBack

    def sentence_of_stop(self, step: int) -> str | None:
        """Return the reason to stop the run at this step edge, and write an event; None if it need not stop."""
        decision = self._pending
        if decision is None or decision.action != "stop":
            return None
        assert decision.cause is not None
        rule, used_up = decision.cause.rule, decision.cause.action != "stop"
        why = f" after {self.state.attempts} attempts to recover" if used_up and self.state.attempts else ""
        text = f"the watchdog stops the run{why}: {decision.cause.text}"
        self._tracker.event(step, "stop", text, rule=rule.name)
        return text


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


def stop_error(step: int, sentence: str, *, run_dir: Path, best: Path | None) -> RunStopped:
    """Return the error that ends a stopped run. best: the checkpoint with the best held-out score."""
    where = "" if best is None else f" The best checkpoint is {best}."
    return RunStopped(
        f"step {step}: {sentence}{where} To continue all the same, change the recipe, such as a lower train.lr, and "
        f"run: ansatz train --resume {run_dir} --allow-changes"
    )
