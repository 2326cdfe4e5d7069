"""Workers and trainer ranks that are killed at random moments, while the command goes on: no bit may change."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from .fingerprint import differences
from .moments import DisturbedRuns
from .processes import LIMIT_S, Started, descendants, finish, is_alive, left_alive

_WITHIN_A_STEP_S = 0.3
_NOTES = "events.jsonl"
"""The file in which a run notes what it has survived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerKill:
    """One kill. process: the name of what was killed, as Ray shows it. rows: of metrics so far."""

    process: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWithKilledWorkers:
    """differences: the files in which the run differs from the undisturbed one. orphans: killed processes, and those
    of the command, that were alive five seconds after its end."""

    kind: str
    kills: tuple[WorkerKill, ...]
    differences: tuple[str, ...]
    orphans: tuple[int, ...]


def run_with_killed_workers(runs: DisturbedRuns, name: str, count: int, draw: random.Random) -> RunWithKilledWorkers:
    """A run whose workers are killed this often, each time a random one, some time after a random step has ended."""
    run, kills, seen = runs.new_run(name), list[WorkerKill](), set[int]()
    last = max(moment.rows for moment in runs.moments)
    process = runs.resume(run)
    for rows in sorted(draw.choices(range(1, last - 1), k=count)):
        if not _wait_for(process, run, rows):
            break
        time.sleep(draw.uniform(0, _WITHIN_A_STEP_S))
        seen |= set(descendants(process.pid))
        if workers := _workers(process):
            victim = draw.choice(workers)
            with suppress(psutil.NoSuchProcess):
                kills.append(WorkerKill(process=victim.name(), rows=_rows(run)))
                victim.kill()
    finish(process)
    changed = tuple(name for name in differences(runs.whole, run) if not name.endswith(_NOTES))
    orphans = left_alive(seen, within_s=5)
    return RunWithKilledWorkers(kind=runs.kind, kills=tuple(kills), differences=changed, orphans=orphans)


def _wait_for(process: Started, run: Path, rows: int) -> bool:
    """Wait for this many rows of metrics and a worker. False if the command has ended before."""
    deadline = time.monotonic() + LIMIT_S
    while is_alive(process.pid) and time.monotonic() < deadline:
        if _rows(run) >= rows and _workers(process):
            return True
        time.sleep(0.01)
    return False


def _rows(run: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in run.glob("*/metrics.jsonl"))


def _workers(process: Started) -> list[psutil.Process]:
    found = list[psutil.Process]()
    for pid in descendants(process.pid):
        with suppress(psutil.NoSuchProcess):
            if (each := psutil.Process(pid)).name().startswith("ray::Actor"):
                found.append(each)
    return found
