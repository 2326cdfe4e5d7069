"""The runs that a viewer shows: folders of the given ones, by names that a client can ask for."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ansatz.errors import AnsatzError
from ansatz.links import hold, is_own_file, list_folder, list_folders
from ansatz.locks import is_held
from ansatz.track.base import LOG
from ansatz.track.console import duration
from ansatz.track.health import HealthCheck, checks_of
from ansatz.track.runs import PipelineRun, StageRun, read_pipeline
from ansatz.track.sweep_rows import FOLDER, holds_rows

if TYPE_CHECKING:
    from ansatz.ui.index import RolloutIndex

MARKS = ("config.yaml", "rollouts.jsonl")
GROWING = (
    "summary.json",
    "run.json",
    LOG,
    "*/config.yaml",
    "*/metrics.jsonl",
    "*/evaluations.jsonl",
    "*/events.jsonl",
    "*/rollbacks.json",
    "*/samples",
    "*/evaluations",
    "*/responses/rollouts.jsonl",
)
"""The files that a run is read from, and folders with files of a step. When one changes, the run has got further."""
_DEPTH = 3  # those of a sweep: sweeps/block-0000/RUN


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A line of the list of runs. notice: why the run cannot be read; empty if it can."""

    name: str
    run: PipelineRun | None
    notice: str = ""

    @property
    def state(self) -> str:
        """Return how the run has ended, as it recorded it: done, interrupted, stopped (by its watchdog) or failed.
        Without such a record it is running, or killed: its files are as they were for five times the time of a step,
        and at least a minute, and no process of this machine holds its folder."""
        if self.run is None or self.run.end:
            return self.run.end["state"] if self.run else "unreadable"
        if self.run.summary:  # of an older version
            return "done"
        newest = max((stat.st_mtime for stat in _stats_of(self.run.folder)), default=0.0)
        rows = [row for stage in self.run.stages for row in stage.metrics]
        seconds = [row["time/step_s"] for row in rows if "time/step_s" in row]
        is_new = time.time() - newest < max(60.0, 5 * median(seconds or [0.0]))
        return "running" if is_new or is_held(self.run.folder) else "killed"

    @cached_property
    def begun(self) -> float:
        """Return when the run began: its recipe is written then."""
        with suppress(OSError):  # it has been removed meanwhile
            return (self.run.folder / "config.yaml").stat().st_mtime if self.run else 0.0
        return 0.0

    @property
    def date(self) -> str:
        return f"{datetime.fromtimestamp(self.begun):%Y-%m-%d %H:%M}"

    @cached_property
    def newest(self) -> tuple[StageRun, int] | None:
        """Return the newest stage that trains, and how many steps it will have; 0 if its recipe does not say."""
        stages = [stage for stage in self.run.stages if stage.metrics] if self.run else []
        return (stages[-1], stages[-1].total_steps) if stages else None

    @property
    def place(self) -> str:
        """Return the newest stage and its step, as in "rl, step 7 of 60"."""
        if self.newest is None:
            return ""
        stage, total = self.newest
        return f"{stage.name}, step {stage.last_step}{f' of {total}' if total else ''}"

    @property
    def left(self) -> str:
        """Return the time that the newest stage will take, at the rate of its last steps; empty if it does not run."""
        if self.newest is None or self.state != "running":
            return ""
        stage, total = self.newest
        rows = stage.metrics[-20:]
        spent, steps = rows[-1]["seconds"] - rows[0]["seconds"], rows[-1]["step"] - rows[0]["step"]
        return duration(spent / steps * (total - stage.last_step)) if steps and total > stage.last_step else ""

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
    awaited = ""
    """The name of a run that another process is about to begin."""

    def __init__(self, folders: Sequence[Path], *, cache: Path | None = None, notes_in_run: bool = False) -> None:
        self.folders, self._cache = [hold(folder.resolve()) for folder in folders], cache
        self.notes_in_run = notes_in_run
        self._indices: dict[Path, RolloutIndex] = {}
        self._opening = threading.Lock()
        self._read: dict[str, tuple[str, RunSummary]] = {}

    def find_runs(self) -> dict[str, Path]:
        """Return the folders of the runs by name. The name of a run in a subfolder begins with the subfolder's name."""
        out: dict[str, Path] = {}
        for folder in self.folders:
            for path in _runs_in(folder, depth=_DEPTH):
                parts = path.relative_to(folder).parts[-2:] or (path.name,)
                name, above = "-".join(parts), [*path.parts[: -len(parts)]]
                while out.get(name, path) != path and above:  # a run of another folder has this name
                    name = f"{above.pop()}-{name}"
                out.setdefault(name, path)
        return out

    def find_sweeps(self) -> dict[str, Path]:
        """Return the files with the rows of sweeps by name. They lie in the folders themselves, or in
        their subfolder `sweeps`."""
        places = (place for folder in self.folders for place in (folder, *list_folders(folder, FOLDER.name)))
        files = (path for place in places for path in list_folder(place, "*.jsonl") if is_own_file(path))
        return {path.stem: path for path in files if holds_rows(path)}

    def summarise(self, name: str, path: Path) -> RunSummary:
        """Return the summary of a run. The run is read again when one of its files has changed."""
        now, known = _state_of(path), self._read.get(name)
        if known is None or known[0] != now:
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

    def open_index(self, path: Path) -> RolloutIndex:
        """Return the index of a run, brought up to date. Raise DataError for a run that stores no responses."""
        from ansatz.ui.index import RolloutIndex  # DuckDB is loaded when a page needs it

        with self._opening:  # two pages that are asked for at once share the index
            if path not in self._indices:
                self._indices[path] = RolloutIndex(path, folder=self._cache)
        self._indices[path].refresh()
        return self._indices[path]


def _state_of(folder: Path) -> str:
    """Return the sizes and times of the files that a run is read from."""
    return "".join(f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns} " for stat in _stats_of(folder))


def _stats_of(folder: Path) -> Iterator[os.stat_result]:
    """Yield the status of each file that a run is read from. One may vanish meanwhile."""
    for pattern in GROWING:
        with suppress(OSError):
            for path in sorted(folder.glob(pattern)):
                yield path.stat()


def _runs_in(folder: Path, *, depth: int) -> Iterator[Path]:
    with suppress(OSError):  # it has been removed meanwhile, or somebody else's folder cannot be read
        if any((folder / mark).is_file() for mark in MARKS):
            yield folder
        elif depth:
            for path in list_folders(folder):
                yield from _runs_in(path, depth=depth - 1)
