"""Trainers that faults are tried on. An adapter is a command that starts a run, one that resumes it, and one that prints
digests of what it has produced.

A trainer of your own is described by a YAML file:

    name: my trainer
    start: [python, train.py, --out, "{run}"]
    resume: [python, train.py, --out, "{run}", --resume]
    digests: [sh, -c, "cd {run} && sha256sum weights.pt metrics.jsonl"]

{run} is the folder of a run, which does not exist before `start`. `resume` must also work if nothing has been saved yet.
`digests` prints a line for each thing that must be the same after faults. Other keys are fields of Adapter. The commands
run in the folder of the file.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from ansatz.loop.interrupts import EXIT_CODE, SIGNALS

from .fingerprint import differences, without_older_checkpoints
from .kinds import ON_WORKERS
from .marked import HELD
from .moments import DisturbedRuns, Start
from .processes import LIMIT_S, OwnProcess, Started, descendants, finish, is_alive

FAULTS = {"kill": 7, "signal": 1, "damage": 1, "full disk": 1}
"""What is done to runs, with weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A command that is to be disturbed now, if it has not ended. aimed: the phase that was meant, or "any moment"."""

    process: Started
    aimed: str = "any moment"
    phases: Callable[[], Sequence[str]] = tuple


@dataclass(slots=True, kw_only=True)
class Adapter:
    """A kind of run. life_s: how long the undisturbed run took.

    faults: those of FAULTS that are tried. signals: names of those that stop a run. stop_codes: the exit codes that they
    may have. stop_s: within this time. refusal_codes: of a command that refuses damage, or cannot go on with a full disk.
    """

    name: str
    faults: Sequence[str] = tuple(FAULTS)
    signals: Sequence[str] = ("SIGTERM", "SIGINT")
    stop_codes: Collection[int] = (0, 75, 128 + 15, 128 + 2, -15, -2)
    stop_s: float = 60.0
    refusal_codes: Collection[int] = (1, 2)
    limit_s: float = LIMIT_S
    life_s: float = 0.0

    def prepare(self) -> None:
        """Make the undisturbed run."""
        raise NotImplementedError

    def launch(self, run: Path, *, first: bool) -> Started:
        """Start the run, or resume it."""
        raise NotImplementedError

    def reach(self, run: Path, within_s: float, draw: random.Random, *, first: bool, fault: str) -> Reached:
        """Start the run, or resume it, and wait for a random moment within this time."""
        process = self.launch(run, first=first)
        wait_random(process, within_s, draw)
        return Reached(process=process)

    def victims(self, process: Started) -> dict[str, int]:
        """Processes below the command that are killed while it goes on, by what they are."""
        return {}

    def differences(self, run: Path, faults: Collection[str], damaged: Collection[str]) -> list[str]:
        """What differs from the undisturbed run. faults: what was done to this one. damaged: files that were."""
        raise NotImplementedError


def wait_random(process: Started, within_s: float, draw: random.Random) -> None:
    """Wait for a random part of this time, or until the command has ended."""
    deadline = time.monotonic() + draw.uniform(0, within_s)
    while is_alive(process.pid) and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.02))


@dataclass(slots=True, kw_only=True)
class CommandAdapter(Adapter):
    """A trainer that a file describes. folder: where the commands run."""

    start: Sequence[str]
    resume: Sequence[str]
    digests: Sequence[str]
    folder: Path
    whole: Path = field(init=False)

    @classmethod
    def read(cls, path: Path) -> CommandAdapter:
        return cls(folder=path.resolve().parent, **yaml.safe_load(path.read_text(encoding="utf-8")))


RECORDS = ("metrics.jsonl", "evaluations.jsonl", "events.jsonl", "summary.json", "run.json")
"""What a run writes for people and does not read to train."""


def is_record(name: str) -> bool:
    return Path(name).name in RECORDS or "/samples/" in name or "/evaluations/" in name


@dataclass(slots=True, kw_only=True)
class KindAdapter(Adapter):
    """A kind of Ansatz run. start, start_whole: see DisturbedRuns."""

    folder: Path
    url: str = ""
    start: Start
    start_whole: Start
    runs: DisturbedRuns = field(init=False)
    _num_rows: int = field(init=False)

    def prepare(self) -> None:
        self.runs = DisturbedRuns(
            self.name, self.folder, url=self.url, start=self.start, start_whole=self.start_whole
        )
        self.life_s = max(moment.at + moment.seconds for moment in self.runs.moments)
        self._num_rows = max(moment.rows for moment in self.runs.moments)

    def launch(self, run: Path, *, first: bool) -> Started:
        if first:
            self.runs.new_run(run.parent.name)
        return self.runs.resume(run)

    def reach(self, run: Path, within_s: float, draw: random.Random, *, first: bool, fault: str) -> Reached:
        if first:
            self.runs.new_run(run.parent.name)
        rows = sum(path.read_bytes().count(b"\n") for path in run.glob("*/metrics.jsonl"))
        soon = [each for each in self.runs.moments if rows <= each.rows <= rows + 1 + self._num_rows // 4]
        moments = [each for each in soon if fault == "kill" or each.phase not in HELD]
        if draw.random() < 0.4 or not moments:
            process = self.runs.resume(run)
            wait_random(process, within_s / 2, draw)
            return Reached(process=process, phases=lambda: self.runs.active(run))
        phase = draw.choice(sorted({each.phase for each in moments}))
        moment = draw.choice([each for each in moments if each.phase == phase])
        process = self.runs.start_towards(run, moment)
        if self.runs.wait_for(process, run):
            wait_random(process, moment.seconds, draw)
        return Reached(process=process, aimed=moment.phase, phases=lambda: self.runs.active(run))

    def victims(self, process: Started) -> dict[str, int]:
        found = dict[str, int]()
        for pid in descendants(process.pid) if self.name in ON_WORKERS else ():
            try:
                name = psutil.Process(pid).name()
            except psutil.NoSuchProcess:
                continue
            if not is_alive(pid):
                continue
            if name.startswith("ray::Actor") or name in ("raylet", "gcs_server"):
                found["worker or rank" if name.startswith("ray::") else name] = pid
        return found

    def differences(self, run: Path, faults: Collection[str], damaged: Collection[str]) -> list[str]:
        changed = differences(self.runs.whole, run)
        if {"signal", "full disk", "damage"} & set(faults):
            changed = without_older_checkpoints(changed, self.runs.whole)
        if "full disk" in faults or self.name in ON_WORKERS:
            changed = [name for name in changed if not name.endswith("events.jsonl")]
        if "full disk" in faults:  # the run continues without the responses of an evaluation that it cannot write
            changed = [name for name in changed if "/evaluations/" not in name]
        if any(map(is_record, damaged)):
            changed = [name for name in changed if not is_record(name)]
        # A file that is not read again stays damaged. In a checkpoint, its digest shows it.
        return [name for name in changed if name not in damaged]
