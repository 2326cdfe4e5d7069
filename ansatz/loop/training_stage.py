"""A training stage while it runs: its state, its start, and how it saves and resumes.

A step edge is the moment between two steps when the stage can be saved (`loop.step_edges`).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ansatz import own_clock, process
from ansatz.config.schema import Config
from ansatz.data.curriculum import curriculum_settings
from ansatz.data.cursor import ProblemStream
from ansatz.errors import AlignmentError, ClusterLost, ConfigError, RewardError
from ansatz.links import list_folders, remove
from ansatz.loop.chain import begin_chain, extend_chain
from ansatz.loop.context import RunContext
from ansatz.loop.disk import check_space
from ansatz.loop.held_run import ORIGIN
from ansatz.loop.step_edges import EdgeSaver, StageFiles, StageState
from ansatz.loop.watch import StageWatch, apply_rollbacks, noise_seed, start_watch, stop_error
from ansatz.track.base import TrackerLike
from ansatz.track.tracker import Tracker
from ansatz.train import checkpoint
from ansatz.train.trainer import TRAINING, Checkpointed, Skipped, Trainer
from ansatz.types import Group, Problem

SKIPPED_KEPT = 5
"""Newest updates in `skipped/` that are kept: each takes the space of the weights."""


AnyTrainer = TypeVar("AnyTrainer", bound=Checkpointed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStage(Generic[AnyTrainer]):
    """One training stage: its folder, its trainer, the problems to come, and the first step that is still to do.

    restored: the stage's own state in the checkpoint that was resumed (`reach_edge`); empty at the start.
    edges: saves the stage. watch: its watchdog; None for a stage without one. at_end: closed after the stage has been
    saved for the last time, such as files that its checkpoints need.
    """

    config: Config
    folder: Path
    edges: EdgeSaver
    trainer: AnyTrainer
    stream: ProblemStream
    tracker: TrackerLike
    total_steps: int
    first_step: int
    restored: Mapping[str, Any]
    watch: StageWatch | None
    at_end: ExitStack

    @property
    def noise_seed(self) -> int:
        """The seed of sampling and of minibatches."""
        return noise_seed(self.config.seed, 0 if self.watch is None else self.watch.state.rollbacks)

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
        """The newest checkpoint; after the last step, the output of the stage."""
        latest = checkpoint.latest(self.folder)
        assert latest is not None
        return latest

    def log(self, step: int, metrics: Mapping[str, float], groups: Sequence[Group] = ()) -> None:
        """Log the metrics of a step and the digests of its groups and weights, and let the watchdog judge them."""
        self.tracker.log(step, metrics)
        extend_chain(self.folder, step, self.trainer, groups, num_steps=self.total_steps)
        if self.watch is not None:
            self.watch.observe(step, metrics)

    def reach_edge(self, step: int, stage_state: StageState = dict, stage_files: StageFiles | None = None) -> None:
        """End a step. Its metrics are logged. Raise RunInterrupted, after saving, if a signal has arrived.

        stage_state: JSON that only this stage understands; it comes back as `restored`. stage_files: writes files that
        the next run finds in `restored_files`. If the watchdog asks for it, raise RolledBack, so that the stage must
        start again, or RunStopped, after saving.
        """
        for seconds in own_clock.take_stops():
            text = f"The process was stopped for {seconds:.1f} s (SIGSTOP, a pause), which no limit on time counts."
            self.tracker.event(step, "paused", text, seconds=round(seconds, 1))
        for sentence in process.take_notes():
            self.tracker.event(step, "settings", sentence)
        if self.watch is None:
            self.edges.end_step(step, stage_state, stage_files)
            return
        self.watch.roll_back_if_due(step)
        sentence = self.watch.sentence_of_stop(step)
        self.edges.end_step(step, self.watch.added_to(stage_state), stage_files)
        if sentence is not None:
            self.edges.save(again=True)
            raise stop_error(step, sentence, run_dir=self.config.run_dir, best=self.edges.best)

    def save_if_due(self, step: int, stage_state: StageState = dict, stage_files: StageFiles | None = None) -> None:
        """Reach the edge, and write a checkpoint if one is due (`EdgeSaver.save_if_due`).

        A step that has reached it already, such as before an evaluation, captures it again.
        """
        self.reach_edge(step, stage_state, stage_files)
        self.edges.save_if_due(last=step == self.total_steps)


def _stream(config: Config, problems: Sequence[Problem], in_rl: bool) -> ProblemStream:
    given = config.data.curriculum if in_rl else None
    curriculum = None if given is None else curriculum_settings(given)
    return ProblemStream(problems, seed=config.seed, curriculum=curriculum, in_order=config.data.order == "file")


@contextmanager
def training_stage(
    context: RunContext,
    config: Config,
    folder: Path,
    *,
    trainer: AnyTrainer,
    problems: Sequence[Problem],
    total_steps: int,
    in_rl: bool = False,
) -> Iterator[TrainingStage[AnyTrainer]]:
    """Yield the stage at its start, or at the latest checkpoint in its folder. Its tracker is closed at the end.

    If a resumed run may succeed after an error, the last step edge is saved before the stage ends. config: the recipe
    of `context`, except for settings that a stage may replace: `sft` in rejection sampling, the path of its critic.
    in_rl: the stage takes its problems as data.curriculum says, and has the watchdog.
    """
    rollbacks = apply_rollbacks(folder)  # all so far; removes checkpoints that the last one dropped
    stream = _stream(config, problems, in_rl)
    step, state = _restore(context, folder, trainer, stream, total_steps=total_steps)
    tracker = Tracker(
        folder,
        console=context.console,
        tensorboard=config.save.tensorboard,
        total_steps=total_steps,
        samples_keep=config.save.samples_keep,
    )
    watch = start_watch(config.watchdog, folder, trainer, tracker, rollbacks, state) if in_rl else None
    for_rollback = 3 if watch is not None and watch.can_roll_back else 0  # `watch.steps_for_rollback`
    check_space(folder, trainer, config.save, for_rollback=for_rollback)
    edges = EdgeSaver(
        folder,
        trainer=trainer,
        stream=stream,
        settings=config.save,
        interrupts=context.interrupts,
        tracker=tracker,
        for_rollback=(lambda steps: ()) if watch is None else watch.checkpoints_to_keep,
        held=context.held,
    )
    edges.capture(step, lambda: state)
    _report_events(context, trainer, folder, tracker)
    own_clock.now()  # stops are noticed from here on
    with closing(tracker), context.interrupts.saving(edges), ExitStack() as at_end:
        tracker.resume(step)  # drops the rows of later steps, which are made again
        begin_chain(folder, step, trainer, dtype=config.model.dtype)
        with _saved_after_errors(edges, config.run_dir):
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
                watch=watch,
                at_end=at_end,
            )
        tracker.flush()


@contextmanager
def _saved_after_errors(edges: EdgeSaver, run_dir: Path) -> Iterator[None]:
    """Save the last step edge if the stage ends with an error that a resumed run may not meet. Otherwise, the steps
    since the last checkpoint would be lost."""
    try:
        yield
    except (AlignmentError, RewardError, ClusterLost) as error:
        saved = edges.save_edge() or "The step could not be saved, because its weights were already changing."
        raise type(error)(f"{error} {saved} Resume with: ansatz train --resume {run_dir}") from error


def _report_events(context: RunContext, trainer: Checkpointed, folder: Path, tracker: TrackerLike) -> None:
    """Let a trainer of a policy report updates that it skips and ranks that it starts again."""
    if isinstance(trainer, Trainer):
        trainer.on_skip = functools.partial(_store_skipped, folder, tracker, Counter())
        trainer.on_event = lambda at_step, text: tracker.event(at_step, "ranks", text)


def _restore(
    context: RunContext, folder: Path, trainer: Checkpointed, stream: ProblemStream, *, total_steps: int
) -> tuple[int, dict[str, Any]]:
    """Restore trainer, stream and random states from the newest checkpoint, and return its step and the stage's own
    state; 0 and nothing for a new stage, whose random states are seeded. ConfigError if the stage has become shorter.
    """
    if (latest := checkpoint.latest(folder)) is None:
        checkpoint.seed_random_states(f"{context.config.seed}/{folder.name}")
        return 0, {}
    context.held.check(checkpoint.loop_state(latest).get(ORIGIN), folder, what=latest)
    step, state = checkpoint.restore(latest, trainer=trainer)
    stream.restore(state.pop("stream"))
    if step > total_steps:
        raise ConfigError(
            f"{latest} is a checkpoint of step {step}, but the recipe now asks for {total_steps} steps. "
            f"A run can be extended, not shortened: set the steps to {step} or more."
        )
    return step, {name: value for name, value in state.items() if name != ORIGIN}


def _store_skipped(folder: Path, tracker: TrackerLike, num_in_step: Counter[int], skipped: Skipped) -> None:
    """Store an update that is skipped, and tell the user. num_in_step: of this process, by step.

    A step that is made again after a kill stores its updates under the same names.
    """
    path = folder / "skipped" / f"step-{skipped.step:06d}-{num_in_step[skipped.step]}"
    num_in_step[skipped.step] += 1
    try:
        skipped.write(path)
        for old in sorted(list_folders(folder / "skipped", "step-*"), key=lambda each: each.stat().st_mtime_ns)[
            :-SKIPPED_KEPT
        ]:
            remove(old)
        stored = f"Its minibatch is stored in {path}."
    except OSError as error:
        stored = f"Its minibatch could not be stored ({error})."
    tracker.event(skipped.step, "skipped", f"{skipped.cause} {stored}")
