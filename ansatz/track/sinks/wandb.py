"""Weights & Biases. Its environment variables hold: WANDB_PROJECT (default: ansatz), WANDB_ENTITY, WANDB_MODE=offline.

Each stage has an axis of its own, STAGE/step. Tables are points of STAGE/samples, and the tracker keeps each of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansatz.track.sinks import Table, TrackedRun, package


class WandbSink:
    """run: of the package."""

    def __init__(self, run: Any) -> None:
        self.id: str = run.id
        self._run, self._curves = run, set[str]()

    def metrics(self, curve: str, step: int, numbers: Mapping[str, float]) -> None:
        self._log(curve, step, {f"{curve}/{name}": value for name, value in numbers.items()})

    def table(self, curve: str, step: int, columns: Sequence[str], rows: Table) -> None:
        table = package("wandb").Table(columns=list(columns), data=list(rows))
        self._log(curve, step, {f"{curve}/samples": table})

    def artifact(self, path: Path) -> None:
        artifact = package("wandb").Artifact(f"{path.stem}-{self.id}", type=path.stem)
        artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def close(self) -> None:
        self._run.finish()

    def _log(self, curve: str, step: int, values: Mapping[str, Any]) -> None:
        if curve not in self._curves:
            self._curves.add(curve)
            self._run.define_metric(f"{curve}/*", step_metric=f"{curve}/step")
        self._run.log({f"{curve}/step": step, **values})


def open_run(run: TrackedRun) -> WandbSink:
    """Open a run, or continue the one that has this id. This process does not train, so it is not recorded."""
    settings = package("wandb").Settings(
        console="off", x_disable_stats=True, disable_git=True, disable_code=True, silent=True
    )
    opened = package("wandb").init(
        project=os.environ.get("WANDB_PROJECT", "ansatz"),
        name=run.name,
        group=run.group or None,
        id=run.id or None,
        resume="allow",
        dir=str(run.folder),
        config=dict(run.config),
        reinit="create_new",
        settings=settings,
    )
    return WandbSink(opened)
