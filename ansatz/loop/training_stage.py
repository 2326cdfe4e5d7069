"""A training stage while it runs: its state, and how it starts, saves and resumes."""

from __future__ import annotations

import functools
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansatz.config.schema import Config
from ansatz.data.curriculum import CurriculumSettings
from ansatz.data.cursor import ProblemStream
from ansatz.errors import ConfigError, RewardError
from ansatz.loop.context import RunContext
from ansatz.loop.disk import check_space
from ansatz.loop.step_edges import EdgeSaver, StageFiles, StageState
from ansatz.track.base import TrackerLike
from ansatz.track.tracker import Tracker
from ansatz.train import checkpoint
from ansatz.train.local import LocalTrainer
from ansatz.train.skipped import SkippedUpdate, write_skipped
from ansatz.train.trainer import TRAINING
from ansatz.types import Problem

SKIPPED_KEPT = 5
"""Newest updates in `skipped/` that are kept: each takes the space of the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStage:
    """One training stage: its folder, what it trains, the problems to come, and the first step that is still to do.

    restored: what the stage itself put into the checkpoint that was resumed (`reach_edge`); empty at the start.
    edges: saves the stage.
    """

    config: Config
    folder: Path
    edges: EdgeSaver
    trainer: LocalTrainer
    stream: ProblemStream
    tracker: TrackerLike
    total_steps: int
    first_step: int
    restored: Mapping[str, Any]

    @property
    def steps(self) -> Iterator[int]:
        """The steps that are still to do. Steps count from 1. Each ends with `reach_edge` or `save_if_due`."""
        for step in range(self.first_step, self.total_steps + 1):
            self.edges.begin_step()
            yield step

    @property
    def restored_files(self) -> Path | None:
        """The folder with the files that the stage has put into the newest checkpoint; None without a checkpoint."""
        latest = checkpoint.latest(self.folder)
        return None if latest is None else latest / TRAINING

    @property
    def output(self) -> Path:
        """The newest checkpoint; after the last step, what the stage has made."""
        latest = checkpoint.latest(self.folder)
        assert latest is not None
        return latest

    def reach_edge(self, step: int, stage_state: StageState = dict, stage_files: StageFiles | None = None) -> None:
        """The step is complete and its metrics are logged. RunInterrupted, after saving, if a signal has arrived.

        stage_state: JSON that only this stage understands; it comes back as `restored`. stage_files: writes files that
        the next run finds in `restored_files`.
        """
        self.edges.reach(step, stage_state, stage_files)

    def save_if_due(self, step: int, stage_state: StageState = dict, stage_files: StageFiles | None = None) -> None:
        """Write a checkpoint if `save.every` asks for one at this step, or if the step is the last."""
        self.edges.reach(step, stage_state, stage_files)
        last = step == self.total_steps
        if step % self.config.save.every == 0 or last or self.edges.retries:
            self.edges.save(again=last)


@contextmanager
def training_stage(
    context: RunContext,
    config: Config,
    folder: Path,
    *,
    trainer: LocalTrainer,
    problems: Sequence[Problem],
    total_steps: int,
    curriculum: CurriculumSettings | None = None,
) -> Iterator[TrainingStage]:
    """The stage at its start, or at the latest checkpoint in its folder. Its tracker is closed at the end.

    A RewardError ends the stage after the last step edge has been saved, because a resumed run may succeed.
    config: the recipe, whose `sft` section may be another than that of `context`.
    """
    stream = ProblemStream(problems, seed=config.seed, curriculum=curriculum)
    step, state = 0, dict[str, Any]()
    if (latest := checkpoint.latest(folder)) is not None:
        step, state = checkpoint.restore(latest, trainer=trainer)
        stream.restore(state.pop("stream"))
        if step > total_steps:
            raise ConfigError(
                f"{latest} is a checkpoint of step {step}, but the recipe now asks for {total_steps} steps. "
                f"A run can be extended, not shortened: set the steps to {step} or more."
            )
    check_space(folder, checkpoint_bytes=trainer.checkpoint_bytes, keep=config.save.keep)
    tracker = Tracker(
        folder,
        console=context.console,
        tensorboard=config.save.tensorboard,
        total_steps=total_steps,
        samples_keep=config.save.samples_keep,
    )
    edges = EdgeSaver(
        folder,
        trainer=trainer,
        stream=stream,
        settings=config.save,
        step=step,
        restored=state,
        interrupts=context.interrupts,
        tracker=tracker,
    )
    trainer.on_skip = functools.partial(_store_skipped, folder, tracker, Counter())
    with closing(tracker), context.interrupts.saving(edges):
        tracker.resume(step)
        try:
            yield TrainingStage(
                config=config,
                folder=folder,
                edges=edges,
                trainer=trainer,
                stream=stream,
                tracker=tracker,
                total_steps=total_steps,
                first_step=step + 1,
                restored=state,
            )
        except RewardError as error:
            saved = edges.save_edge() or "The step could not be saved, because its weights were already changing."
            raise type(error)(f"{error} {saved} Resume with: ansatz train --resume {config.run_dir}") from error
        tracker.flush()


def _store_skipped(folder: Path, tracker: TrackerLike, num_in_step: Counter[int], skipped: SkippedUpdate) -> None:
    """Store an update that is skipped, and tell the user. num_in_step: of this process, by step.

    A step that is made again after a kill stores its updates under the same names.
    """
    path = folder / "skipped" / f"step-{skipped.step:06d}-{num_in_step[skipped.step]}"
    num_in_step[skipped.step] += 1
    try:
        write_skipped(path, skipped)
        for old in sorted((folder / "skipped").glob("step-*"), key=lambda each: each.stat().st_mtime_ns)[
            :-SKIPPED_KEPT
        ]:
            shutil.rmtree(old)
        stored = f"Its minibatch is stored in {path}."
    except OSError as error:
        stored = f"Its minibatch could not be stored ({error})."
    tracker.event(skipped.step, "skipped", f"{skipped.cause} {stored}")
