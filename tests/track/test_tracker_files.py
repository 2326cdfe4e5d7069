"""What the tracker leaves on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_up import evaluation_row as row
from made_up import scored
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tracker_folder import TrackerFolder

from ansatz.errors import DataError
from ansatz.track.jsonl import read_jsonl
from ansatz.track.metrics import check_known
from ansatz.track.rollout_rows import rollout_row
from ansatz.track.tracker import Tracker, evaluation_scalars


def test_a_torn_last_line_is_dropped_and_the_step_can_be_logged_again(tmp_path: Path):
    first = Tracker(tmp_path, console=None, tensorboard=False, total_steps=3)
    first.log(1, {"train/loss": 1.0})
    first.evaluation(row(1))
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        with (tmp_path / name).open("a") as file:
            file.write('{"step": 2, "seco')
    second = Tracker(tmp_path, console=None, tensorboard=False, total_steps=3)
    second.log(2, {"train/loss": 2.0})
    assert TrackerFolder(tmp_path).steps == {1: {"train/loss": 1.0}, 2: {"train/loss": 2.0}}
    assert len(TrackerFolder(tmp_path).evaluations) == 1


def test_a_whole_line_without_its_newline_counts_as_torn(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "seconds": 1.0}\n{"step": 2, "seconds": 2.0}')
    Tracker(tmp_path, console=None, tensorboard=False, total_steps=3)
    assert list(TrackerFolder(tmp_path).steps) == [1]


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "seconds": 1.0}\n{oops\n{"step": 3, "seconds": 2.0}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2"):
        Tracker(tmp_path, console=None, tensorboard=False, total_steps=3)


@pytest.mark.parametrize("name", ["metrics", "evaluations", "events"])
def test_a_row_that_no_run_writes_is_named_and_nothing_is_removed(tmp_path: Path, name: str):
    tracker = Tracker(tmp_path, console=None, tensorboard=False, total_steps=3)
    tracker.log(1, {"train/loss": 1.0})
    file = tmp_path / f"{name}.jsonl"
    with file.open("a") as rows:
        rows.write("{}\n")
    before = file.read_bytes()
    with pytest.raises(DataError, match=rf"{name}\.jsonl, .* is 'missing'"):
        tracker.resume(0)
    assert file.read_bytes() == before


def test_a_row_twice_is_named(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "seconds": 1.0}\n' * 2)
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2: step 1 comes after step 1"):
        Tracker(tmp_path, console=None, tensorboard=False, total_steps=3)


def test_rows_that_are_missing_at_a_resume_are_an_event(tmp_path: Path):
    tracker = Tracker(tmp_path, console=None, tensorboard=False, total_steps=9)
    for step in (1, 2, 3, 4):
        tracker.log(step, {"train/loss": 1.0})
    tracker.resume(4)
    assert TrackerFolder(tmp_path).events == []
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text(lines[0] + lines[3])
    tracker.resume(4)
    (event,) = TrackerFolder(tmp_path).events
    assert (event["step"], event["kind"]) == (4, "rows_missing")
    assert "lost the rows of 2 steps, the first of which is 2" in event["text"]


def test_opening_a_folder_without_resume_goes_on_after_its_last_step(tmp_path: Path):
    Tracker(tmp_path, console=None, tensorboard=False, total_steps=3).log(7, {"train/loss": 1.0})
    with pytest.raises(ValueError, match="after those of step 7"):
        Tracker(tmp_path, console=None, tensorboard=False, total_steps=9).log(7, {"train/loss": 1.0})


def test_seconds_go_on_from_the_resumed_step(tmp_path: Path):
    now = [100.0]
    first = Tracker(tmp_path, console=None, tensorboard=False, total_steps=3, clock=lambda: now[0])
    for step in (1, 2):
        now[0] += 10
        first.log(step, {"train/loss": 1.0})
    now[0] = 5000.0
    second = Tracker(tmp_path, console=None, tensorboard=False, total_steps=3, clock=lambda: now[0])
    second.resume(1)
    now[0] += 3
    second.log(2, {"train/loss": 1.0})
    assert [line["seconds"] for line in read_jsonl(tmp_path / "metrics.jsonl")] == [10.0, 13.0]


def test_each_line_is_on_disk_when_log_returns(tmp_path: Path):
    tracker = Tracker(tmp_path, console=None, total_steps=3)
    tracker.log(1, {"train/loss": 0.5})
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line == {"step": 1, "seconds": line["seconds"], "train/loss": 0.5}
    assert scalars(tmp_path, "train/loss") == [(1, 0.5)]


def scalars(folder: Path, tag: str):
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_tensorboard_has_the_metrics_and_evaluations_under_documented_names(tmp_path: Path):
    tracker = Tracker(tmp_path, console=None, total_steps=3)
    tracker.log(1, {"rollout/rewards": 0.5, "train/entropy": 0.25})
    tracker.evaluation(row(1))
    tracker.close()
    assert scalars(tmp_path, "rollout/rewards") == [(1, 0.5)]
    assert scalars(tmp_path, "eval/heldout/pass@1/6") == [(1, pytest.approx(row(1)["by_level"]["6"]["pass@1"]))]
    check_known(evaluation_scalars(row(1)))
    parts = {"by_source": {"easy": {"pass@1": 0.5}}, "rewards": {"brief": 0.25}}
    found = evaluation_scalars({**row(1), **parts})
    assert (found["eval/heldout/pass@1/easy"], found["eval/heldout/reward/brief"]) == (0.5, 0.25)
    check_known(found)


@pytest.mark.parametrize("at", [0, 2])
def test_tensorboard_shows_each_step_once_after_a_resume(tmp_path: Path, at: int):
    first = Tracker(tmp_path, console=None, total_steps=5)
    for step in range(1, 5):
        first.log(step, {"train/loss": 1.0})
    second = Tracker(tmp_path, console=None, total_steps=5)
    second.resume(at)
    second.evaluation(row(at))  # the evaluation of the resumed step must not hide that step's metrics
    for step in range(at + 1, 6):
        second.log(step, {"train/loss": 2.0})
    second.close()
    wanted = [(step, 1.0 if step <= at else 2.0) for step in range(1, 6)]
    assert scalars(tmp_path, "train/loss") == wanted


def test_tracking_and_estimators_bring_in_no_torch_and_no_tensorflow():
    code = (
        "import sys, tempfile, pathlib, ansatz.track.report, ansatz.track.rollouts, ansatz.track.follow\n"
        "import ansatz.evaluate.estimators\nfrom ansatz.track.tracker import Tracker\n"
        "Tracker(pathlib.Path(tempfile.mkdtemp()), console=None, total_steps=1).log(1, {'train/loss': 1.0})\n"
        "print(sorted({'torch', 'tensorflow', 'transformers'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_responses_that_cannot_be_written_are_an_event_and_the_run_goes_on(tmp_path: Path):
    (tmp_path / "evaluations").write_text("a file where the folder should be")
    tracker = Tracker(tmp_path, console=None, tensorboard=False, total_steps=9)
    rows = [rollout_row(scored(), group="rl/1/heldout/0", noise_step=0, temperature=1.0)]
    for step in range(1, 9):  # more often than a run allows for its metrics
        tracker.evaluation(row(step), rows)
        tracker.log(step, {"train/loss": 1.0})
    has = TrackerFolder(tmp_path)
    assert [event["kind"] for event in has.events] == ["not_stored"] * 8
    assert "evaluations" in has.events[0]["text"]
    assert "The responses of this evaluation are not stored; its numbers are." in has.events[0]["text"]
    assert len(has.evaluations) == len(has.steps) == 8


@pytest.mark.parametrize("kept", [True, False])
def test_tensorboard_shows_an_evaluation_once_that_a_resumed_run_repeats(tmp_path: Path, kept: bool):
    """A run that has ended before its done.json evaluates its last step again."""
    first = Tracker(tmp_path, console=None, total_steps=2)
    for step in (1, 2):
        first.log(step, {"train/loss": 1.0})
    first.evaluation(row(2))
    second = Tracker(tmp_path, console=None, total_steps=2)
    second.resume(2 if kept else 1)
    if not kept:
        second.log(2, {"train/loss": 1.0})
    second.evaluation(row(2))
    second.close()
    assert [step for step, _ in scalars(tmp_path, "eval/heldout/pass@1")] == [2]
    assert len(read_jsonl(tmp_path / "evaluations.jsonl")) == 1
