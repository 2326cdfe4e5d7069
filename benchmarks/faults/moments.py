"""Runs that are disturbed at chosen moments: an undisturbed run shows which moments there are, and how it ends."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .fingerprint import differences
from .kinds import write_recipe
from .marked import PHASES, SIZE, active_phases
from .processes import LIMIT_S, Started, finish, is_alive, start_marked

Start = Callable[..., Started]
"""Starts a marked command: a file of marks, a plan as JSON, and the command's arguments."""
ANY = "any moment"
"""The call in progress at any time between the first call of the command and its last, instead of a phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A call of the undisturbed run. rows: of metrics at its begin. at: seconds since the first call. seconds: long."""

    phase: str
    rows: int
    at: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A command that is where it was meant to be disturbed. aimed: the phase, or ANY."""

    aimed: str
    process: Started
    marks: Path
    run: Path

    def phases(self) -> tuple[str, ...]:
        """What is in progress, or was when the command was killed."""
        return tuple(active_phases(self.marks.read_bytes()))

    def rows(self) -> int:
        """The rows of metrics so far."""
        return sum(path.read_bytes().count(b"\n") for path in self.run.glob("*/metrics.jsonl"))


class DisturbedRuns:
    """Runs of one kind. whole: the undisturbed one, made first. moments: its calls. phases: those that they are of.

    start, start_whole: for the disturbed runs and for the undisturbed one. changes: to the recipe.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        *,
        url: str = "",
        start: Start = start_marked,
        start_whole: Start | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.kind, self._folder, self._url, self._start, self._changes = kind, folder, url, start, changes
        self.whole = folder / "whole" / "run"
        recipe, marks = self._recipe(self.whole), _new_marks(self.whole)
        finish((start_whole or start)(marks, json.dumps({"run": str(self.whole)}), "train", recipe))
        lines = marks.with_suffix(".log").read_text().splitlines()
        self.moments = [Moment(**json.loads(line)) for line in lines]
        self.phases = [phase for phase in PHASES if any(moment.phase == phase for moment in self.moments)]

    def new_run(self, name: str) -> Path:
        """The folder of a run that has not begun yet."""
        run = self._folder / name / "run"
        self._recipe(run)
        return run

    def reach(self, run: Path, aims: Sequence[str], draw: random.Random) -> Iterator[Reached]:
        """Start the run, or resume it, until it is in one of these phases, at a random moment; then in the next one.

        The caller ends the command each time. The order is that of the undisturbed run. A moment that the run has
        already passed is left out.
        """
        drawn = [(self._draw(phase, draw), phase) for phase in aims]
        for moment, aimed in sorted(drawn, key=lambda each: each[0].at):
            if (reached := self.reach_moment(run, moment, aimed=aimed)) is not None:
                time.sleep(draw.uniform(0, moment.seconds))
                yield reached

    def reach_moment(self, run: Path, moment: Moment, *, aimed: str) -> Reached | None:
        """Start or resume the run until this moment begins. None if it ends before, or had already passed it."""
        process = self.start_towards(run, moment)
        if not self.wait_for(process, run):
            finish(process)
            return None
        return Reached(aimed=aimed, process=process, marks=_marks(run), run=run)

    def start_towards(self, run: Path, moment: Moment) -> Started:
        """Start or resume the run, so that `wait_for` notices this moment."""
        plan = {"run": str(run), "phase": moment.phase, "rows": moment.rows}
        return self._start(_new_marks(run), json.dumps(plan), "train", *_arguments(run))

    def wait_for(self, process: Started, run: Path) -> bool:
        """Wait until the moment begins. False if the command ends before, or takes too long."""
        deadline = time.monotonic() + LIMIT_S
        while is_alive(process.pid) and time.monotonic() < deadline:
            if _marks(run).read_bytes()[-1]:
                return True
            time.sleep(0.002)
        return False

    def active(self, run: Path) -> list[str]:
        """What is in progress, or was when the command was killed."""
        return active_phases(_marks(run).read_bytes())

    def resume(self, run: Path, **plan: Any) -> Started:
        """Start or resume the run and leave it alone. plan: more of the plan, such as a full disk."""
        text = json.dumps({"run": str(run), "phase": "none", **plan})
        return self._start(_new_marks(run), text, "train", *_arguments(run))

    def finish(self, run: Path) -> tuple[str, ...]:
        """Let the run end. Returns the files in which it differs from the undisturbed one."""
        finish(self.resume(run))
        return tuple(differences(self.whole, run))

    def _recipe(self, run: Path) -> Path:
        return write_recipe(self.kind, out=run.parent, url=self._url, changes=self._changes)

    def _draw(self, phase: str, draw: random.Random) -> Moment:
        if phase == ANY:  # by a call, not by the clock: the disturbed run may be faster than the undisturbed one
            starts = [each.at for each in self.moments]
            time_s = draw.uniform(min(starts), max(starts))
            return max((each for each in self.moments if each.at <= time_s), key=lambda each: each.at)
        return draw.choice([moment for moment in self.moments if moment.phase == phase])


def _marks(run: Path) -> Path:
    return run.parent / "marks"


def _new_marks(run: Path) -> Path:
    path = _marks(run)
    path.write_bytes(bytes(SIZE))
    return path


def _arguments(run: Path) -> list[str | Path]:
    """A run that was killed before its recipe was stored is started again, as its user would."""
    if (run / "run.json").exists() and (run / "config.yaml").exists():
        return ["--resume", run]
    return [run.parent / "recipe.yaml", "--fresh"]
