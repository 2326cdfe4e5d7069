"""Trackio, which keeps its data on this machine or in a Space of Hugging Face.

Its environment variables hold: TRACKIO_PROJECT (default: ansatz), TRACKIO_DIR, TRACKIO_SPACE_ID, TRACKIO_SERVER_URL.
It finds a run by its name, so the name gets some digits of its own.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansatz.track.sinks import Table, TrackedRun, package


class TrackioSink:
    """run: of the package."""

    def __init__(self, run: Any) -> None:
        self.id: str = run.name
        self._run = run

    def metrics(self, curve: str, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log({f"{curve}/{name}": value for name, value in numbers.items()}, step=step)

    def table(self, curve: str, step: int, columns: Sequence[str], rows: Table) -> None:
        table = package("trackio").Table(columns=list(columns), data=list(rows))
        self._run.log({f"{curve}/samples": table}, step=step)

    def artifact(self, path: Path) -> None:
        self._run.log_artifact(path, name=f"{path.stem}-{self.id.replace('/', '-')}", type=path.stem)

    def close(self) -> None:
        self._run.finish()


def open_run(run: TrackedRun) -> TrackioSink:
    """Open a run, or continue the one that has this id."""
    opened = package("trackio").init(
        project=os.environ.get("TRACKIO_PROJECT", "ansatz"),
        name=run.id or f"{run.name}-{secrets.token_hex(3)}",
        group=run.group or None,
        config=dict(run.config),
        resume="allow",
        embed=False,
        auto_log_cpu=False,
        auto_log_gpu=False,
    )
    return TrackioSink(opened)
