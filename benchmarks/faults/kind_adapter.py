"""The kinds of Ansatz run as adapters. An undisturbed run shows which calls there are, and faults are aimed at them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansatz.loop.interrupts import EXIT_CODE, SIGNALS
from ansatz.track.jsonl import read_jsonl
from ansatz.track.step_files import SAMPLES

from .adapters import WEIGHTS, Adapter, Reached, wait_random
from .damage import Damage, random_damage
from .fingerprint import differences, untimed, without_older_checkpoints
from .kinds import ON_WORKERS, write_recipe
from .marked import HELD, SIZE, active_phases
from .processes import Forks, Started, finish, is_alive, start_marked
from .run_damage import STRAY, can_be_changed, changes

Start = Callable[..., Started]
"""Starts a marked command: a file of marks, a plan as JSON, and the command's arguments."""
RAY = ("raylet", "gcs_server")
"""Processes of Ray. The object store is a thread of the raylet."""
AIMED_FRAC = 0.6
"""Of the faults. The others come at a random time."""
_RECORDS = ("metrics.jsonl", "evaluations.jsonl", "events.jsonl", "summary.json", "run.json", "config.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A call of the undisturbed run. rows: of metrics at its begin. at: seconds since the first call. seconds: long."""

    phase: str
    rows: int
    at: float
    seconds: float


@dataclass(slots=True, kw_only=True)
class KindAdapter(Adapter):
    """Runs of one kind. start, start_whole: for the disturbed runs and for the undisturbed one. url: of the judge.

    changes: to the recipe. whole: the undisturbed run. moments: its calls.
    """

    start: Start = start_marked
    start_whole: Start = start_marked
    url: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    whole: Path = field(init=False)
    moments: list[Moment] = field(init=False)

    def prepare(self, folder: Path) -> None:
        self.whole = folder / "whole" / "run"
        plan = {"run": str(self.whole)}
        finish(self.start_whole(_new_marks(self.whole), json.dumps(plan), "train", *self._arguments(self.whole)))
        lines = _marks(self.whole).with_suffix(".log").read_text().splitlines()
        self.moments = [Moment(**json.loads(line)) for line in lines]
        self.life_s = max(moment.at + moment.seconds for moment in self.moments)

    def launch(self, run: Path) -> Started:
        return self._start_towards(run, "none", 0)

    def reach(self, run: Path, aim: Any, fault: str, within_s: float, draw: random.Random) -> Reached:
        """aim: a phase, a moment, or None."""
        moment = aim if isinstance(aim, Moment) else self._next_moment(run, aim, fault, draw)
        if moment is None:
            reached = super(KindAdapter, self).reach(run, aim, fault, within_s / 2, draw)
            return Reached(process=reached.process, phases=lambda: _active(run))
        process = self._start_towards(run, moment.phase, moment.rows)
        if self._wait_for_target(process, run):
            wait_random(process, moment.seconds, draw)
        return Reached(process=process, aimed=moment.phase, phases=lambda: _active(run))

    def damage(self, run: Path, name: str | None, draw: random.Random) -> Damage | None:
        named = changes(run, draw) if can_be_changed(run) else {}
        if name is None and (not named or draw.random() < 0.5):
            return random_damage(run, draw)
        name = name or draw.choice(list(named))
        named[name](run)
        return Damage(name=name, files=(name.partition(":")[0],))

    def differences(self, run: Path, faults: Collection[str], damaged: Collection[str]) -> list[str]:
        changed = differences(self.whole, run)
        if set(faults) - {"kill", "stop"}:  # a run that is stopped saves, and one without space cannot: at other steps
            changed = without_older_checkpoints(changed, self.whole)
        if "full disk" in faults or self.name in ON_WORKERS:  # events tell of it
            changed = [name for name in changed if not name.endswith("events.jsonl")]
        if "full disk" in faults:  # the run goes on without the responses of an evaluation
            changed = [name for name in changed if "/evaluations/" not in name]
            changed = [name for name in changed if not _only_lacks_tokens(run / name, self.whole / name)]
        if any(_is_record(name) for name in damaged):
            changed = [name for name in without_older_checkpoints(changed, run) if not _is_record(name)]
        # What is not read again stays damaged, and its digest shows it.
        return [
            name for name in changed if not {name, *map(str, Path(name).parents)} & set(damaged) and STRAY not in name
        ]

    def _next_moment(self, run: Path, phase: str | None, fault: str, draw: random.Random) -> Moment | None:
        """A moment that is not far away. phase: None for a random one, or none at all."""
        if phase is None and draw.random() > AIMED_FRAC:
            return None
        rows, far = _num_rows(run), 1 + max(moment.rows for moment in self.moments) // 4
        ahead = [each for each in self.moments if rows <= each.rows and each.phase == (phase or each.phase)]
        if fault != "kill" or self.children:  # the run may have to go on, and is not held
            ahead = [each for each in ahead if each.phase not in HELD]
        near = [each for each in ahead if each.rows <= rows + far] or ahead
        if not near:
            return None
        phase = phase or draw.choice(sorted({each.phase for each in near}))
        return draw.choice([each for each in near if each.phase == phase])

    def _start_towards(self, run: Path, phase: str, rows: int) -> Started:
        plan = {"run": str(run), "phase": phase, "rows": rows}
        return self.start(_new_marks(run), json.dumps(plan), "train", *self._arguments(run))

    def _wait_for_target(self, process: Started, run: Path) -> bool:
        """Wait until the run is where it was started towards. False if it ends before, or takes too long."""
        deadline = time.monotonic() + self.limit_s
        while is_alive(process.pid) and time.monotonic() < deadline:
            if _marks(run).read_bytes()[-1]:
                return True
            time.sleep(0.002)
        return False

    def _arguments(self, run: Path) -> list[str | Path]:
        """A run that was killed before its recipe was stored is started again, as its user would."""
        if (run / "run.json").exists() and (run / "config.yaml").exists():
            return ["--resume", run]
        recipe = write_recipe(self.name, out=run.parent, url=self.url, changes=self.changes)
        return [recipe, "--fresh"]


@contextmanager
def kind_adapters(names: Sequence[str], *, url: str) -> Iterator[list[Adapter]]:
    """The undisturbed runs come from other interpreters than the others, so the hashes of strings differ.

    Commands are forks of one process, which saves their imports, except on workers. url: of the judge.
    """
    with Forks() as forks, Forks() as others:
        yield [_adapter(name, url, forks, others) for name in names]


def _adapter(name: str, url: str, forks: Forks, others: Forks) -> KindAdapter:
    starts: dict[str, Start] = {} if name in ON_WORKERS else {"start": forks.start, "start_whole": others.start}
    adapter = KindAdapter(name=name, url=url, **starts, **PROMISES)
    # A signal during the imports of a command, or before it has set its handlers, ends it at once.
    adapter.stop_codes = (*adapter.stop_codes, *(-number for number in SIGNALS))
    if name in ON_WORKERS:
        adapter.children, adapter.limit_s = ("ray::Actor", *RAY), 600.0
        adapter.faults = [fault for fault in WEIGHTS if fault != "full disk"]
    return adapter


PROMISES: dict[str, Any] = {
    "signals": [number.name for number in SIGNALS],
    "stop_codes": (0, EXIT_CODE),
    "stop_s": 15.0,
    "refusal_codes": (2,),
}
"""What a signal and a damage do to a run of Ansatz."""


def _only_lacks_tokens(file: Path, whole: Path) -> bool:
    """Return whether an event says that the tokens of this step are not stored, and its rows differ in nothing else."""
    name, _, kind = file.name.partition(".")
    if file.parent.name != SAMPLES or kind not in ("jsonl", "tokens.npy"):
        return False
    events = read_jsonl(file.parents[1] / "events.jsonl")
    step = int(name.rpartition("-")[2])
    if not any(event["kind"] == "not_stored" and event["step"] == step for event in events):
        return False
    if kind == "tokens.npy":
        return True
    own, expected = ([{**untimed(row), "tokens_at": None} for row in read_jsonl(each)] for each in (file, whole))
    return own == expected


def _is_record(name: str) -> bool:
    """Whether a file is written for people and not read to train."""
    path = Path(name)
    return path.name in _RECORDS or bool({"samples", "evaluations", "tensorboard"} & set(path.parts))


def _num_rows(run: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in run.glob("*/metrics.jsonl") if path.is_file())


def _active(run: Path) -> list[str]:
    return active_phases(_marks(run).read_bytes())


def _marks(run: Path) -> Path:
    return run.parent / "marks"


def _new_marks(run: Path) -> Path:
    path = _marks(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(SIZE))
    return path
