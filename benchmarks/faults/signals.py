"""Signals at random moments: each must end the run in time, with a checkpoint and no process, to continue unchanged."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from ansatz.loop.interrupts import EXIT_CODE, SIGNALS
from ansatz.train.checkpoint import list_checkpoints, verify_digests

from .fingerprint import without_older_checkpoints
from .moments import DisturbedRuns
from .processes import descendants, left_alive

MARGIN_S = 5.0
"""Seconds after `save.grace` at which the run must have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalOutcome:
    """What a signal did. phases: what was in progress. code: of the exit. seconds: from the signal to the exit.

    saved: the newest checkpoint, undamaged; None before the first step edge. orphans: processes that were still alive
    five seconds after the exit. in_time: within save.grace and MARGIN_S. message: the last line of standard error.
    """

    signal: str
    aimed: str
    phases: tuple[str, ...]
    code: int
    seconds: float
    in_time: bool
    saved: str | None
    orphans: tuple[int, ...]
    message: str

    @property
    def good(self) -> bool:
        return self.code == EXIT_CODE and self.in_time and not self.orphans


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalledRun:
    """A run that was stopped several times. differences: the files in which it differs from the undisturbed run."""

    kind: str
    signals: tuple[SignalOutcome, ...]
    differences: tuple[str, ...]


def signalled_run(runs: DisturbedRuns, name: str, aims: Sequence[str], draw: random.Random) -> SignalledRun:
    """A run that is stopped by a signal once in each of these phases, at random moments, and then finished."""
    run, outcomes = runs.new_run(name), list[SignalOutcome]()
    for reached in runs.reach(run, aims, draw):
        number, below = draw.choice(SIGNALS), descendants(reached.process.pid)
        phases, sent = reached.phases(), time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(reached.process.pid, number)
        code, seconds = reached.process.wait(), time.monotonic() - sent
        if (run / "report.html").exists():  # the run had ended
            continue
        saved = _newest_checkpoint(run)
        if saved is not None:
            verify_digests(saved)
        outcomes.append(
            SignalOutcome(
                signal=number.name,
                aimed=reached.aimed,
                phases=phases,
                code=code,
                seconds=round(seconds, 2),
                in_time=seconds <= _grace(run) + MARGIN_S,
                saved=None if saved is None else str(saved.relative_to(run)),
                orphans=left_alive(below, within_s=5),
                message=(reached.process.error().splitlines() or [""])[-1],
            )
        )
    changed = without_older_checkpoints(runs.finish(run), runs.whole)
    return SignalledRun(kind=runs.kind, signals=tuple(outcomes), differences=tuple(changed))


def _newest_checkpoint(run: Path) -> Path | None:
    checkpoints = [path for stage in run.glob("*/checkpoints") for path in list_checkpoints(stage.parent)]
    return max(checkpoints, key=lambda path: path.stat().st_mtime, default=None)


def _grace(run: Path) -> float:
    return float(yaml.safe_load((run.parent / "recipe.yaml").read_text(encoding="utf-8"))["save"]["grace"])
