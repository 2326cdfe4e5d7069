"""The rollbacks of a stage, in its folder: their record, and the logs of the steps that they dropped.

    STAGE/rollbacks.json    {"rollbacks": [{"from_step": 40, "to_step": 25, ...}, ...]}, oldest first
    STAGE/rolled_back/1/    metrics.jsonl, evaluations.jsonl, events.jsonl, samples/ and evaluations/ of the steps that
                            rollback 1 dropped

A rollback takes effect when its record is written. The files of the stage then hold only the steps that count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_type_hints

from ansatz.errors import CheckpointError
from ansatz.files import write_text
from ansatz.json_text import read_object
from ansatz.links import list_folder, make_folder, rename
from ansatz.track.checked_rows import read_events, read_steps
from ansatz.track.jsonl import Row, read_jsonl, write_jsonl
from ansatz.track.step_files import step_files_after

FILE, FOLDER = "rollbacks.json", "rolled_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """from_step: the last step that was dropped. to_step: the step of the checkpoint; 0: the start of the stage.

    lr_scale, attempts: in the watchdog's state from then on. rule: the rule that asked for it.
    """

    from_step: int
    to_step: int
    rule: str
    lr_scale: float
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A row of events.jsonl. dropped_by: the number of the rollback that dropped its step; 0: its step counts."""

    row: Row
    dropped_by: int = 0


def read_rollbacks(folder: Path) -> tuple[Rollback, ...]:
    """Return the rollbacks, oldest first; empty if nothing has been recorded. Raise CheckpointError for a damaged
    one."""
    path = folder / FILE
    if not path.is_file():
        return ()
    advice = "Restore the file from a backup, or start the stage anew by removing its folder."
    content, kinds = read_object(path, error=CheckpointError, advice=advice), get_type_hints(Rollback)
    try:
        return tuple(Rollback(**{key: kind(row[key]) for key, kind in kinds.items()}) for row in content["rollbacks"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({type(error).__name__}: {error}). {advice}") from error


def write_rollbacks(folder: Path, rollbacks: Sequence[Rollback]) -> None:
    content = {"rollbacks": [asdict(rollback) for rollback in rollbacks]}
    write_text(folder / FILE, json.dumps(content, indent=2) + "\n")


def set_aside(folder: Path, rollbacks: Sequence[Rollback]) -> None:
    """Move everything that was logged after `to_step` of the last rollback into its folder in `rolled_back`.

    Can be repeated after a kill. metrics.jsonl is written last; once it exists, everything is there, and rows after
    `to_step` come from steps that were made since.
    """
    if not rollbacks:
        return
    target, after = folder / FOLDER / str(len(rollbacks)), rollbacks[-1].to_step
    if (target / "metrics.jsonl").exists():
        return
    for file in step_files_after(folder, after):
        moved = target / file.path.relative_to(folder)
        make_folder(moved.parent)
        rename(file.path, moved)
    for name in ("evaluations.jsonl", "events.jsonl", "metrics.jsonl"):
        write_jsonl(target / name, [row for row in read_steps(folder / name) if row["step"] > after])


def seconds_logged(folder: Path) -> float:
    """Return the seconds that the stage had spent when its last row was logged, dropped steps included."""
    paths = [folder / "metrics.jsonl", *(each / "metrics.jsonl" for each in list_folder(folder / FOLDER))]
    return max((_seconds(rows[-1], path) for path in paths if (rows := read_jsonl(path))), default=0.0)


def _seconds(row: Row, path: Path) -> float:
    try:
        return float(row["seconds"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: the last row has no seconds ({row!r:.60}). Restore the file, or remove the row."
        ) from error


def event_history(folder: Path) -> list[Event]:
    """Return all events of a stage, including the events of dropped steps, oldest first."""
    rollbacks = read_rollbacks(folder)
    events = [Event(row=row) for row in read_events(folder / "events.jsonl")]
    for number in range(1, len(rollbacks) + 1):
        rows = read_events(folder / FOLDER / str(number) / "events.jsonl")
        events += [Event(row=row, dropped_by=number) for row in rows]

    def attempt(event: Event) -> int:
        """Return the number of rollbacks before the event: a rollback to an earlier step would have dropped it."""
        last = event.dropped_by - 1 if event.dropped_by else len(rollbacks)
        before = (number for number in range(1, last + 1) if rollbacks[number - 1].to_step < event.row["step"])
        return max(before, default=0)

    return sorted(events, key=lambda event: (attempt(event), event.row["step"]))
