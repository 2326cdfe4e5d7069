"""Kills at random moments: a run that is killed and resumed again and again must end in the same bits."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass

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
    """A run that was killed several times. differences: the files in which it differs from the undisturbed run."""

    kind: str
    kills: tuple[Kill, ...]
    differences: tuple[str, ...]


def killed_run(runs: DisturbedRuns, name: str, aims: Sequence[str], draw: random.Random) -> KilledRun:
    """A run that is killed once in each of these phases, at random moments, and then finished.

    Either the command alone is killed, as the kernel does when memory is short, or all that it has started as well.
    """
    run, kills = runs.new_run(name), list[Kill]()
    for reached in runs.reach(run, aims, draw):
        below = descendants(reached.process.pid)
        code = draw.choice((kill, kill_tree))(reached.process)
        if code not in (0, -signal.SIGKILL):
            raise RuntimeError(f"{runs.kind}: exit code {code} before the kill: {reached.process.error()[-3000:]}")
        if code:
            orphans = left_alive(below, within_s=5)
            kills.append(Kill(aimed=reached.aimed, phases=reached.phases(), rows=reached.rows(), orphans=orphans))
    return KilledRun(kind=runs.kind, kills=tuple(kills), differences=runs.finish(run))
