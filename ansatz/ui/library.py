"""The runs that a viewer shows: folders of the given ones, by names that a client can ask for."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ansatz.errors import AnsatzError
from ansatz.track.console import LOG
from ansatz.track.health import HealthCheck, checks_of
from ansatz.track.runs import PipelineRun, read_pipeline
from ansatz.track.sweep_rows import holds_rows

if TYPE_CHECKING:
    from ansatz.ui.index import RolloutIndex

MARKS = ("config.yaml", "rollouts.jsonl")
GROWING = (
    "summary.json",
    LOG,
    "*/config.yaml",
    "*/metrics.jsonl",
    "*/evaluations.jsonl",
    "*/events.jsonl",
    "*/rollbacks.json",
)
"""The files of which a run is read. When one changes, the run has got further."""
_DEPTH = 3  # those of a sweep: sweeps/block-0000/RUN


@dataclass(frozen=True, kw_only=True)
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

    @cached_property
    def checks(self) -> dict[str, list[HealthCheck]]:
        """Return the checks of every stage by its name."""
        return checks_of(self.run) if self.run else {}

    @property
    def ends(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the first and the last evaluation on the first held-out problems."""
        rows = self.run.evaluations() if self.run else []
        rows = [row for row in rows if row["split"] == rows[0]["split"]]
        return (rows[0], rows[-1]) if rows else None


class Library:
    """folders: runs, and folders with runs. Links in them are not followed. notes_in_run: whether new notes are written
    into the run. asks_models: whether a reader can ask checkpoints, which starts processes."""

    asks_models = False

    def __init__(self, folders: Sequence[Path], *, cache: Path | None = None, notes_in_run: bool = False) -> None:
        self.folders, self._cache = [folder.resolve() for folder in folders], cache
        self.notes_in_run = notes_in_run
        self._indices: dict[str, RolloutIndex] = {}
        self._opening = threading.Lock()
        self._read: dict[str, tuple[str, RunSummary]] = {}

    def find_runs(self) -> dict[str, Path]:
        """Return the folders of the runs by name. That of a run in a subfolder begins with the subfolder's name."""
        out: dict[str, Path] = {}
        for folder in self.folders:
            for path in _runs_in(folder, depth=_DEPTH):
                out.setdefault("-".join(path.relative_to(folder).parts[-2:]) or path.name, path)
        return out

    def find_sweeps(self) -> dict[str, Path]:
        """Return the files with the rows of sweeps by name. They lie in the folders themselves."""
        files = (path for folder in self.folders for path in sorted(folder.glob("*.jsonl")) if not path.is_symlink())
        return {path.stem: path for path in files if holds_rows(path)}

    def summarise(self, name: str, path: Path) -> RunSummary:
        """Return what a run has logged. It is read again when one of its files has changed."""
        now = _state_of(path)
        if self._read.get(name, ("",))[0] != now:
            try:
                read = RunSummary(name=name, run=read_pipeline(path))
            except (AnsatzError, OSError) as error:
                read = RunSummary(name=name, run=None, notice=str(error))
            self._read[name] = now, read
        return self._read[name][1]

    def describe_state(self, names: Sequence[str] = ()) -> dict[str, Any]:
        """Return how far runs are, by default all, and a version that changes whenever a page about them would."""
        found = {name: path for name, path in self.find_runs().items() if not names or name in names}
        runs = {name: self.summarise(name, path) for name, path in found.items()}
        steps = {name: {each.name: each.last_step for each in run.run.stages} for name, run in runs.items() if run.run}
        states = {name: {"state": run.state, "steps": steps.get(name, {})} for name, run in runs.items()}
        files = "".join(f"{path}{_state_of(path)}" for path in found.values())
        version = hashlib.sha256(f"{files}{states}".encode()).hexdigest()[:16]
        return {"version": version, "runs": states}

    def open_index(self, name: str, path: Path) -> RolloutIndex:
        """Return the index of a run, brought up to date. Raise DataError for a run that stores no responses."""
        from ansatz.ui.index import RolloutIndex  # DuckDB is loaded when a page needs it

        with self._opening:  # two pages that are asked for at once share the index
            if name not in self._indices:
                self._indices[name] = RolloutIndex(path, folder=self._cache)
        self._indices[name].refresh()
        return self._indices[name]


def _state_of(folder: Path) -> str:
    """Return the sizes and times of the files of which a run is read. One may vanish meanwhile."""
    out = ""
    for path in (path for pattern in GROWING for path in sorted(folder.glob(pattern))):
        with suppress(OSError):
            stat = path.stat()
            out += f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns} "
    return out


def _runs_in(folder: Path, *, depth: int) -> Iterator[Path]:
    if any((folder / mark).is_file() for mark in MARKS):
        yield folder
    elif depth:
        for path in sorted(each for each in folder.glob("*") if each.is_dir() and not each.is_symlink()):
            yield from _runs_in(path, depth=depth - 1)
