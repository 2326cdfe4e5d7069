"""The runs that a viewer shows: folders of the given ones, by names that a client can ask for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ansatz.errors import AnsatzError
from ansatz.track.runs import PipelineRun, read_pipeline
from ansatz.ui.index import RolloutIndex

MARKS = ("config.yaml", "rollouts.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A line of the list of runs. notice: why the run cannot be read; empty if it can."""

    name: str
    run: PipelineRun | None
    notice: str = ""

    @property
    def state(self) -> str:
        """Return done, running, or stopped: no new line for five times the time of a step, and at least a minute."""
        if self.run is None or self.run.summary:
            return "done" if self.run else "unreadable"
        files = [stage.folder / "metrics.jsonl" for stage in self.run.stages if stage.metrics]
        newest = max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
        rows = [row for stage in self.run.stages for row in stage.metrics]
        seconds = [row["time/step_s"] for row in rows if "time/step_s" in row]
        return "running" if time.time() - newest < max(60.0, 5 * median(seconds or [0.0])) else "stopped"

    @property
    def place(self) -> str:
        """Return the newest stage and its step."""
        stages = [stage for stage in self.run.stages if stage.metrics] if self.run else []
        return f"{stages[-1].name}, step {stages[-1].last_step}" if stages else ""

    @property
    def ends(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the first and the last evaluation on the first held-out problems."""
        rows = self.run.evaluations() if self.run else []
        rows = [row for row in rows if row["split"] == rows[0]["split"]]
        return (rows[0], rows[-1]) if rows else None


class Library:
    """folders: runs, and folders with runs. A link that leads out of them is not followed."""

    def __init__(self, folders: Sequence[Path], *, cache: Path | None = None) -> None:
        self.folders, self._cache = [folder.resolve() for folder in folders], cache
        self._indices: dict[str, RolloutIndex] = {}

    def find_runs(self) -> dict[str, Path]:
        """Return the folders of the runs by name."""
        out: dict[str, Path] = {}
        for folder in self.folders:
            inside = [folder] if _is_run(folder) else sorted(path for path in folder.glob("*") if _is_run(path))
            for path in inside:
                if path.resolve().is_relative_to(folder):
                    out.setdefault(path.name, path)
        return out

    def summarise(self, name: str, path: Path) -> RunSummary:
        try:
            return RunSummary(name=name, run=read_pipeline(path))
        except (AnsatzError, OSError) as error:
            return RunSummary(name=name, run=None, notice=str(error))

    def open_index(self, name: str, path: Path) -> RolloutIndex:
        """Return the index of a run, brought up to date. Raise DataError for a run that stores no responses."""
        if name not in self._indices:
            self._indices[name] = RolloutIndex(path, folder=self._cache)
        self._indices[name].refresh()
        return self._indices[name]


def _is_run(folder: Path) -> bool:
    return folder.is_dir() and any((folder / mark).is_file() for mark in MARKS)
