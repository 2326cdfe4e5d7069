"""Step edges: the moments between two steps when a training stage can be saved, and the saving itself.

The state that changes during a step is small, apart from the weights: the position in the problems, partial rollouts,
counters and random states. It is captured at each edge. Until the step changes the weights for the first time, the edge
before it can therefore still be saved, although sampling has moved on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansatz.config.schema import SaveSection
from ansatz.data.cursor import ProblemStream
from ansatz.errors import CheckpointError, ClusterLost, StorageError
from ansatz.files import not_written, remedy
from ansatz.loop.held_run import ORIGIN, HeldRun
from ansatz.loop.interrupts import Interrupts
from ansatz.track.base import TrackerLike
from ansatz.track.checked_rows import read_evaluations
from ansatz.track.runs import best_evaluation
from ansatz.train import checkpoint
from ansatz.train.trainer import Checkpointed

StageState = Callable[[], Mapping[str, Any]]
"""JSON that only the stage understands, made when it is needed from objects that do not change."""

StageFiles = Callable[[Path], None]
"""Writes files that only the stage understands into a folder of a checkpoint."""


MAX_FAILURES = 3
"""This number of failed checkpoints in a row stops a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEdge:
    """The state of a stage after `step`, without the weights. changes: `Trainer.changes` at this moment. captured: the
    trainer's counters and the random generators."""

    step: int
    changes: int
    captured: Mapping[str, Any]
    stream: Mapping[str, Any]
    stage_state: StageState
    stage_files: StageFiles | None


class EdgeSaver:
    """Captures every step edge of a stage and writes checkpoints of them: at the steps that are due, and on signals.

    `capture` must be called before the first step. tracker: its rows are written before a checkpoint is, and it gets an
    event when a checkpoint cannot be written. on_saved: called with the step of a new checkpoint; the stage may set it.
    for_rollback: given the steps with a checkpoint, in rising order, returns steps to keep besides newest and best.
    held: the folder of the run, whose lock is checked at every edge and before every checkpoint, so that two processes
    never write the same stage.
    """

    def __init__(
        self,
        folder: Path,
        *,
        trainer: Checkpointed,
        stream: ProblemStream,
        settings: SaveSection,
        interrupts: Interrupts,
        tracker: TrackerLike,
        held: HeldRun,
        for_rollback: Callable[[Sequence[int]], Collection[int]] = lambda steps: (),
    ) -> None:
        self._folder, self._trainer, self._stream = folder, trainer, stream
        self._settings, self._interrupts, self._for_rollback = settings, interrupts, for_rollback
        self._writing, self._failures, self._tracker, self._held = False, 0, tracker, held
        self.on_saved: Callable[[int], None] = lambda step: None

    @property
    def idle(self) -> bool:
        """Tell whether neither a step nor a checkpoint is in progress, so that a signal can end the run at once."""
        return not self._in_step and not self._writing

    def begin_step(self) -> None:
        self._in_step = True

    def capture(self, step: int, stage_state: StageState, stage_files: StageFiles | None = None) -> None:
        """Capture the edge after `step`; 0 before the first one. Without this, a signal in the next step would find no
        edge to save."""
        self._edge = StepEdge(
            step=step,
            changes=self._trainer.changes,
            captured=checkpoint.capture(self._trainer),
            stream=self._stream.state(),
            stage_state=stage_state,
            stage_files=stage_files,
        )
        self._in_step = False

    def end_step(self, step: int, stage_state: StageState, stage_files: StageFiles | None = None) -> None:
        """Capture the edge. If a signal has arrived, save the edge and end the run. Raise ConfigError if the run's
        folder is no longer this process's alone."""
        if (sentence := self._held.check_lock()) is not None:
            self._tracker.event(step, "lock", sentence)  # about a lock file that was lost
        self.capture(step, stage_state, stage_files)
        if self._interrupts.signal is not None:
            self._interrupts.leave(self._try_to_save())

    @property
    def best(self) -> Path | None:
        """The checkpoint with the best held-out score; None if no checkpoint has been evaluated."""
        return best_checkpoint(self._folder)

    def save_if_due(self, *, last: bool) -> None:
        """Save the edge that has just been reached if `save.every` asks for it, if it is the last or the best, or if
        the last checkpoint could not be written."""
        step, settings = self._edge.step, self._settings
        due = last or self._failures > 0 or step % settings.every == 0
        if due or (settings.best and _is_best(self._folder, step)):
            self.save(again=last)

    def save(self, *, again: bool = False) -> None:
        """Write a checkpoint of the edge that has just been reached.

        If it cannot be written, the next step tries again; with `again`, for the last step, it is tried at once. Raise
        CheckpointError after three failures in a row.
        """
        try:
            sentence = self._save()
        except (OSError, StorageError) as error:
            self._failures += 1
            sentence = self._sentence(error)
            self._tracker.event(self._edge.step, "not_saved", f"The checkpoint could not be written: {sentence}")
            if self._failures == MAX_FAILURES:
                raise CheckpointError(
                    f"step {self._edge.step}: the checkpoint could not be written, {MAX_FAILURES} times in a row. "
                    f"{sentence} {self._last_complete()} {remedy(error)}, then continue with --resume."
                ) from error
            if again:
                self.save(again=True)
            return
        self._failures = 0
        if self._interrupts.signal is not None:
            self._interrupts.leave(sentence)

    def save_edge(self) -> str | None:
        """Save the newest edge in the middle of a step, and return a sentence about it. None if the step has changed
        the weights already, or while a checkpoint is being written."""
        if self._writing or self._trainer.changes != self._edge.changes:
            return None
        return self._try_to_save()

    def _try_to_save(self) -> str:
        """Save the edge of a run that is about to end. Return a sentence about it, also if saving fails."""
        try:
            return self._save()
        except ClusterLost:
            why = "because the trainer's ranks are gone"
            return f"Step {self._edge.step} could not be saved, {why}. {self._last_complete()}"
        except (OSError, StorageError) as error:
            return f"Step {self._edge.step} could not be saved: {self._sentence(error)} {self._last_complete()}"

    def _sentence(self, error: OSError | StorageError) -> str:
        if isinstance(error, StorageError):
            return str(error)
        return not_written(self._folder / "checkpoints", error, needed=self._trainer.checkpoint_bytes)

    def _last_complete(self) -> str:
        latest = checkpoint.latest(self._folder)
        return "There is no checkpoint." if latest is None else f"The last checkpoint is {latest}."

    def _save(self) -> str:
        edge = self._edge
        if edge.step == 0:
            return "No step was complete, so there is nothing to save."
        latest = checkpoint.latest(self._folder)
        if latest is None or latest.name != checkpoint.name_of(edge.step):
            self._held.check_lock()
            self._writing = True
            try:
                self._tracker.flush()  # a resumed run could not write earlier rows again
                latest = checkpoint.save(
                    self._folder,
                    step=edge.step,
                    trainer=self._trainer,
                    state={"stream": edge.stream, ORIGIN: self._held.origin(self._folder), **edge.stage_state()},
                    keep=self._settings.keep,
                    also_keep=self._also_kept,
                    captured=edge.captured,
                    write_more=edge.stage_files,
                )
                self._remove_optimizer_state()
            finally:
                self._writing = False
            self.on_saved(edge.step)
        return f"Step {edge.step} is saved in {latest}."

    def _also_kept(self, steps: Sequence[int]) -> set[int]:
        """Return the checkpoints that are kept besides the newest: for rollbacks, and the best."""
        best = _best_step(self._folder, steps) if self._settings.best else set[int]()
        whole = [step for step in steps if checkpoint.is_resumable(checkpoint.path_of(self._folder, step))]
        return best.union(self._for_rollback(whole))

    def _remove_optimizer_state(self) -> None:
        """Remove it from all checkpoints except the newest and the ones for rollbacks, if `save.optimizer` says so."""
        if self._settings.optimizer == "all":
            return
        paths = {checkpoint.step_of(path): path for path in checkpoint.list_checkpoints(self._folder)}
        whole = [step for step, path in paths.items() if checkpoint.is_resumable(path)]
        for step in {*paths} - {whole[-1], *self._for_rollback(whole)}:
            checkpoint.keep_weights(paths[step])


def best_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of a stage with the best held-out score; None if no checkpoint has been evaluated."""
    steps = _best_step(folder, _steps(folder))
    return checkpoint.path_of(folder, steps.pop()) if steps else None


def _is_best(folder: Path, step: int) -> bool:
    """Tell whether the policy after a step is evaluated, and better than at all steps with a checkpoint."""
    return step in _best_step(folder, {*_steps(folder), step})


def _best_step(folder: Path, steps: Collection[int]) -> set[int]:
    """Return the step with the best held-out score of the stage; empty if none of these steps has been evaluated."""
    rows = read_evaluations(folder / "evaluations.jsonl")
    best = best_evaluation((row for row in rows if row["stage"] == folder.name), steps)
    return set() if best is None else {best["step"]}


def _steps(folder: Path) -> list[int]:
    return [checkpoint.step_of(path) for path in checkpoint.list_checkpoints(folder)]
