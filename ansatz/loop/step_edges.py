"""Step edges: the moments between two steps at which a training stage can be saved, and how it is saved there.

What changes during a step is small, apart from the weights: the position in the problems, partial rollouts, counters
and random states. It is captured at each edge. Until the step changes the weights for the first time, the edge before
it can therefore still be saved, although sampling has moved on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansatz.config.schema import SaveSection
from ansatz.data.cursor import ProblemStream
from ansatz.loop.interrupts import Interrupts
from ansatz.train import checkpoint
from ansatz.train.local import LocalTrainer

StageState = Callable[[], Mapping[str, Any]]
"""JSON that only the stage understands, made when it is needed from objects that do not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEdge:
    """Where a stage stands after `step`, without the weights. changes: `Trainer.changes` at this moment."""

    step: int
    changes: int
    captured: Mapping[str, Any]
    stream: Mapping[str, Any]
    stage_state: StageState


class EdgeSaver:
    """Captures every step edge of a stage and writes checkpoints of them: at the steps that are due, and on signals.

    step: the last step that is done; 0 at the start. restored: the stage's own state there.
    """

    def __init__(
        self,
        folder: Path,
        *,
        trainer: LocalTrainer,
        stream: ProblemStream,
        settings: SaveSection,
        step: int,
        restored: Mapping[str, Any],
        interrupts: Interrupts,
    ) -> None:
        self._folder, self._trainer, self._stream = folder, trainer, stream
        self._settings, self._interrupts = settings, interrupts
        self._writing = False
        self.capture(step, lambda: restored)

    @property
    def idle(self) -> bool:
        return not self._in_step and not self._writing

    def begin_step(self) -> None:
        self._in_step = True

    def capture(self, step: int, stage_state: StageState) -> None:
        """Capture the edge after `step`. Without this, a signal in the next step would find no edge to save."""
        self._edge = StepEdge(
            step=step,
            changes=self._trainer.changes,
            captured=checkpoint.capture(self._trainer),
            stream=self._stream.state(),
            stage_state=stage_state,
        )
        self._in_step = False

    def reach(self, step: int, stage_state: StageState) -> None:
        """Capture the edge. If a signal has arrived, save the edge and end the run."""
        self.capture(step, stage_state)
        if self._interrupts.signal is not None:
            self._interrupts.leave(self._save())

    def save(self) -> None:
        """Write a checkpoint of the edge that has just been reached."""
        sentence = self._save()
        if self._interrupts.signal is not None:
            self._interrupts.leave(sentence)

    def save_edge(self) -> str | None:
        if self._writing or self._trainer.changes != self._edge.changes:
            return None
        return self._save()

    def _save(self) -> str:
        edge = self._edge
        if edge.step == 0:
            return "No step was complete, so there is nothing to save."
        latest = checkpoint.latest(self._folder)
        if latest is None or latest.name != checkpoint.name_of(edge.step):
            self._writing = True
            try:
                latest = checkpoint.save(
                    self._folder,
                    step=edge.step,
                    trainer=self._trainer,
                    state={"stream": edge.stream, **edge.stage_state()},
                    keep=self._settings.keep,
                    captured=edge.captured,
                )
            finally:
                self._writing = False
        return f"Step {edge.step} is saved in {latest}."
