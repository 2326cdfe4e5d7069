"""What a training stage holds while it runs, and how it starts, saves and goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansatz.config.load import dump
from ansatz.config.schema import Config
from ansatz.data.curriculum import CurriculumSettings
from ansatz.data.cursor import ProblemStream
from ansatz.models.load import Policy
from ansatz.track.base import ConsoleSink, TrackerLike
from ansatz.track.tracker import Tracker
from ansatz.train import checkpoint
from ansatz.train.trainer import Trainer
from ansatz.types import Problem, Rollout, rollout_from_json, to_json

DONE_FILE = "done.json"


PartialRollouts = dict[str, list[Rollout]]
"""Rollouts of problems that have unfinished ones among them, by the problem's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStage:
    """One training stage: its folder, the policy it changes, the step to go on from, and what that step finds begun."""

    config: Config
    folder: Path
    trainer: Trainer
    stream: ProblemStream
    tracker: TrackerLike
    total_steps: int
    first_step: int
    carried: PartialRollouts = field(default_factory=PartialRollouts)

    def steps(self) -> range:
        """The steps still to do, from 1; after a resume those past the checkpoint."""
        return range(self.first_step, self.total_steps + 1)

    @property
    def policy(self) -> Policy:
        return self.trainer.policy

    def save(self, step: int) -> Path:
        return checkpoint.save(
            self.folder,
            step=step,
            trainer=self.trainer,
            state={
                "stream": self.stream.state(),
                "carried": {name: [to_json(one) for one in members] for name, members in self.carried.items()},
            },
            keep=self.config.save.keep,
        )

    def save_due(self, step: int) -> bool:
        return step % self.config.save.every == 0 or step == self.total_steps


def open_stage(
    config: Config,
    folder: Path,
    *,
    trainer: Trainer,
    problems: Sequence[Problem],
    total_steps: int,
    console: ConsoleSink | None,
    curriculum: CurriculumSettings | None = None,
) -> TrainingStage:
    """A stage at its start, or at its latest checkpoint where its folder holds one."""
    stream = ProblemStream(problems, seed=config.seed, curriculum=curriculum)
    step, carried = 0, PartialRollouts()
    if (last := checkpoint.latest(folder)) is not None:
        step, state = checkpoint.restore(last, trainer=trainer)
        stream.restore(state["stream"])
        carried |= {name: [rollout_from_json(one) for one in members] for name, members in state["carried"].items()}
    tracker = Tracker(folder, console=console, tensorboard=config.save.tensorboard, total_steps=total_steps)
    tracker.resume(step)
    return TrainingStage(
        config=config,
        folder=folder,
        trainer=trainer,
        stream=stream,
        tracker=tracker,
        total_steps=total_steps,
        first_step=step + 1,
        carried=carried,
    )


def write_config(config: Config, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "config.yaml", dump(config))


def read_done(folder: Path) -> dict[str, Any] | None:
    """{"output": path within the folder, "seconds": s} of a finished stage, None of an unfinished one."""
    path = folder / DONE_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_done(folder: Path, *, output: str, seconds: float) -> None:
    write_atomically(folder / DONE_FILE, json.dumps({"output": output, "seconds": round(seconds, 3)}))


def write_atomically(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


class Clock:
    """Seconds since it was made or last read by `lap`."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        elapsed, self._last = now - self._last, now
        return elapsed
