"""The record of rollbacks, what they set aside, and the story that the events tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansatz.errors import CheckpointError, DataError
from ansatz.track.jsonl import Row, read_jsonl, write_jsonl
from ansatz.track.rollbacks import Rollback, event_history, read_rollbacks, seconds_logged, set_aside, write_rollbacks


def rollback(from_step: int, to_step: int) -> Rollback:
    return Rollback(from_step=from_step, to_step=to_step, rule="reward", lr_scale=0.5, attempts=1)


def log(folder: Path, steps: range, *, attempt: int) -> None:
    """Rows of the steps, each with an event that says in which attempt it was made."""
    for name, key in (("metrics", "attempt"), ("events", "text"), ("evaluations", "attempt")):
        path = folder / f"{name}.jsonl"
        rows = [{"step": step, "seconds": 100.0 * attempt + step, "kind": "alarm", key: str(attempt)} for step in steps]
        write_jsonl(path, [row for row in read_jsonl(path) if row["step"] < steps[0]] + rows)


def roll_back(folder: Path, from_step: int, to_step: int) -> None:
    write_rollbacks(folder, [*read_rollbacks(folder), rollback(from_step, to_step)])
    set_aside(folder, read_rollbacks(folder))


def test_the_story_of_two_rollbacks_comes_in_the_order_in_which_it_happened(tmp_path: Path):
    """Steps 1 to 5, back to 3, steps 4 to 6, back to 2, steps 3 and 4."""
    log(tmp_path, range(1, 6), attempt=0)
    roll_back(tmp_path, 5, 3)
    log(tmp_path, range(4, 7), attempt=1)
    roll_back(tmp_path, 6, 2)
    log(tmp_path, range(3, 5), attempt=2)
    story = [(event.row["step"], event.row["text"], event.dropped_by) for event in event_history(tmp_path)]
    assert story == [
        *[(1, "0", 0), (2, "0", 0), (3, "0", 2), (4, "0", 1), (5, "0", 1)],
        *[(4, "1", 2), (5, "1", 2), (6, "1", 2)],
        *[(3, "2", 0), (4, "2", 0)],
    ]
    assert [row["step"] for row in read_jsonl(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4]
    assert seconds_logged(tmp_path) == 204.0


def test_what_was_logged_after_a_rollback_is_never_taken_for_dropped(tmp_path: Path):
    log(tmp_path, range(1, 6), attempt=0)
    roll_back(tmp_path, 5, 3)
    dropped = read_jsonl(tmp_path / "rolled_back/1/metrics.jsonl")
    log(tmp_path, range(4, 5), attempt=1)
    set_aside(tmp_path, read_rollbacks(tmp_path))  # as after a kill before the next checkpoint
    assert read_jsonl(tmp_path / "rolled_back/1/metrics.jsonl") == dropped
    assert [row["attempt"] for row in dropped] == ["0", "0"]


def test_the_files_of_dropped_steps_are_moved(tmp_path: Path):
    log(tmp_path, range(1, 4), attempt=0)
    files = {"samples": "step", "evaluations": "heldout"}
    for folder, name in files.items():
        for step in (1, 2, 3):
            write_jsonl(tmp_path / folder / f"{name}-{step:06d}.jsonl", [{"step": step}])
    roll_back(tmp_path, 3, 1)
    for folder, name in files.items():
        assert [path.name for path in sorted((tmp_path / folder).iterdir())] == [f"{name}-000001.jsonl"]
        moved = sorted(path.name for path in (tmp_path / "rolled_back/1" / folder).iterdir())
        assert moved == [f"{name}-000002.jsonl", f"{name}-000003.jsonl"]


@pytest.mark.parametrize("name", ["metrics", "events", "evaluations"])
@pytest.mark.parametrize("row", [{}, {"step": "x"}, {"step": None, "seconds": []}])
def test_a_damaged_row_is_refused_by_its_place_whoever_reads_it(tmp_path: Path, name: str, row: Row):
    log(tmp_path, range(1, 6), attempt=0)
    write_jsonl(tmp_path / f"{name}.jsonl", [row])
    write_rollbacks(tmp_path, [rollback(5, 3)])
    with pytest.raises(DataError, match=rf"{name}\.jsonl, line 1: 'step' is "):
        set_aside(tmp_path, read_rollbacks(tmp_path))
    if name == "events":
        with pytest.raises(DataError, match=r"events\.jsonl, line 1: 'step' is "):
            event_history(tmp_path)
    if name == "metrics":
        with pytest.raises(CheckpointError, match=r"metrics\.jsonl: the last row has no seconds"):
            seconds_logged(tmp_path)
