"""Trainers that faults are tried on: a command that starts a run, one that resumes it, and one that prints digests.

A trainer of your own is described by a YAML file:

    name: my trainer
    start: [python, train.py, --out, "{run}"]
    resume: [python, train.py, --out, "{run}", --resume]
    digests: [sh, -c, "cd {run} && sha256sum weights.pt metrics.jsonl"]

Its other keys are the fields of Adapter. docs/reliability.md explains it.
"""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from .damage import Damage, random_damage
from .processes import LIMIT_S, OwnProcess, Started, descendants, finish, is_alive

WEIGHTS = {"kill": 7, "signal": 1, "damage": 1, "full disk": 1, "stop": 1}
"""The faults, and how often each is drawn."""
ANY = "any moment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A command that is to be disturbed now, if it has not ended. aimed: the phase that was meant, or ANY.

    phases: what is in progress, or was when the command was killed; empty if that is not known.
    """

    process: Started
    aimed: str = ANY
    phases: Callable[[], Iterable[str]] = tuple


@dataclass(slots=True, kw_only=True)
class Adapter:
    """A kind of run.

    faults: those that are tried. children: patterns of the names of processes that are killed while the command lives.
    signals: those that end a run. stop_codes: the exit codes that they may have. stop_s: how long the exit may take.
    refusal_codes: of a command that refuses damage, or cannot continue with a full disk or without a child. limit_s: no
    command takes longer. commit: for the table; left out, that of Ansatz.
    """

    name: str
    faults: Sequence[str] = tuple(WEIGHTS)
    children: Sequence[str] = ()
    signals: Sequence[str] = ("SIGTERM", "SIGINT")
    stop_codes: Collection[int] = (0, 1, 75, -2, -15, 130, 143)
    stop_s: float = 60.0
    refusal_codes: Collection[int] = (1, 2)
    limit_s: float = LIMIT_S
    commit: str = ""
    life_s: float = field(default=0.0, init=False)
    """How long the undisturbed run took."""

    def prepare(self, folder: Path) -> None:
        """Make the undisturbed run. folder: of all runs of this kind."""
        raise NotImplementedError

    def launch(self, run: Path) -> Started:
        """Start the run, or resume it."""
        raise NotImplementedError

    def reach(self, run: Path, aim: Any, fault: str, within_s: float, draw: random.Random) -> Reached:
        """Start the run, or resume it, and wait for a random moment. aim: None for any, within this time; what else it
        can be is up to the adapter."""
        process = self.launch(run)
        wait_random(process, within_s, draw)
        return Reached(process=process)

    def damage(self, run: Path, name: str | None, draw: random.Random) -> Damage | None:
        """Damage the run. name: None for a random one. Returns None if there is nothing to damage."""
        return random_damage(run, draw)

    def victims(self, process: Started) -> dict[str, int]:
        """Process ids of random children, by the pattern of their name."""
        found = dict[str, int]()
        for child in map(_process, descendants(process.pid) if self.children else ()):
            if child is not None:
                found |= {each: child.pid for each in self.children if re.match(each, child.name())}
        return found

    def differences(self, run: Path, faults: Collection[str], damaged: Collection[str]) -> list[str]:
        """What differs from the undisturbed run. faults: what was done to this one. damaged: files of it."""
        raise NotImplementedError


@dataclass(slots=True, kw_only=True)
class CommandAdapter(Adapter):
    """A trainer that a file describes. The commands run in the folder of the file; {run} in them is that of the run."""

    start: Sequence[str]
    resume: Sequence[str]
    digests: Sequence[str]
    folder: Path
    _whole: Mapping[str, str] = field(default_factory=dict, init=False)

    @classmethod
    def read(cls, path: Path) -> CommandAdapter:
        return cls(folder=path.resolve().parent, **yaml.safe_load(path.read_text(encoding="utf-8")))

    def prepare(self, folder: Path) -> None:
        whole, started = folder / "whole" / "run", time.monotonic()
        finish(self.launch(whole))
        self.life_s = time.monotonic() - started
        self._whole = self._digests(whole)
        if not self._whole:
            raise RuntimeError(f"{self.name}: the command of `digests` printed nothing")

    def launch(self, run: Path) -> Started:
        command = self.resume if run.parent.exists() else self.start
        run.parent.mkdir(parents=True, exist_ok=True)
        return OwnProcess(program=_filled(command, run), folder=self.folder, limit_s=self.limit_s)

    def differences(self, run: Path, faults: Collection[str], damaged: Collection[str]) -> list[str]:
        digests = self._digests(run)
        names = self._whole.keys() | digests.keys()
        return sorted(name for name in names if self._whole.get(name) != digests.get(name))

    def _digests(self, run: Path) -> dict[str, str]:
        printed = subprocess.run(
            _filled(self.digests, run), cwd=self.folder, capture_output=True, text=True, check=True
        )
        lines = (line.split(maxsplit=1) for line in printed.stdout.splitlines() if line.strip())
        return {name: digest for digest, name in lines}


def wait_random(process: Started, within_s: float, draw: random.Random) -> None:
    """Wait for a random part of this time, or until the command has ended."""
    deadline = time.monotonic() + draw.uniform(0, within_s)
    while is_alive(process.pid) and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.02))


def _filled(command: Sequence[str], run: Path) -> tuple[str, ...]:
    return tuple(part.replace("{run}", str(run)) for part in command)


def _process(pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except psutil.NoSuchProcess:
        return None
