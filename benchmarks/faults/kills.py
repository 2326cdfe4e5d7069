"""Kills at random moments: a run that is killed and resumed again and again must end in the same bits."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ansatz.loop.ledger import Ledger
from ansatz.train.checkpoint import list_checkpoints, step_of

from .damage import STAGE
from .moments import DisturbedRuns
from .processes import descendants, kill, kill_tree, left_alive


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One kill. aimed: the phase that it was meant to fall into. phases: what was in progress. rows: metrics so far.

    orphans: processes of the command that were still alive five seconds later.
    """

    aimed: str
    phases: tuple[str, ...]
    rows: int
    orphans: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KilledRun:
    """A run that was killed several times. differences: the files in which it differs from the undisturbed run.

    landed: the groups that the ledger had for the steps after the checkpoint when the run was continued for the last
    time. reused: how many of them were not sampled again.
    """

    kind: str
    kills: tuple[Kill, ...]
    differences: tuple[str, ...]
    landed: int
    reused: int


def killed_run(runs: DisturbedRuns, name: str, aims: Sequence[str], draw: random.Random) -> KilledRun:
    """A run that is killed once in each of these phases, at random moments, and then finished.

    Either the command alone is killed, as the kernel does when memory is short, or all that it has started as well.
    In one run of four, the ledger is removed after each kill.
    """
    without_ledger = draw.random() < 0.25
    run, kills = runs.new_run(name), list[Kill]()
    for reached in runs.reach(run, aims, draw):
        below = descendants(reached.process.pid)
        code = draw.choice((kill, kill_tree))(reached.process)
        if code not in (0, -signal.SIGKILL):
            raise RuntimeError(f"{runs.kind}: exit code {code} before the kill: {reached.process.error()[-3000:]}")
        if code:
            orphans = left_alive(below, within_s=5)
            kills.append(Kill(aimed=reached.aimed, phases=reached.phases(), rows=reached.rows(), orphans=orphans))
            if without_ledger:
                shutil.rmtree(run / STAGE / "ledger", ignore_errors=True)
    landed = _landed(run / STAGE)
    differences = runs.finish(run)
    reused = _reused(run / STAGE) if landed else 0
    return KilledRun(kind=runs.kind, kills=tuple(kills), differences=differences, landed=landed, reused=reused)


def _landed(stage: Path) -> int:
    """The groups in the ledger that no checkpoint covers."""
    saved = max(map(step_of, list_checkpoints(stage)), default=0)
    return sum(key.step > saved for key in Ledger(stage / "ledger").landed())


def _reused(stage: Path) -> int:
    """The groups that the last command of a run took from the ledger."""
    last = (stage / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    return int(json.loads(last)["perf/groups_from_ledger"])
