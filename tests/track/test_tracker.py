"""The contract of trackers, over the real one and the fake, then what the real one leaves on disk."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest
from made_up import evaluation, scored
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ansatz.errors import DataError, NonFiniteError
from ansatz.track.fake import MemoryTracker
from ansatz.track.jsonl import read_jsonl
from ansatz.track.metrics import check_known
from ansatz.track.tracker import Tracker, evaluation_scalars
from ansatz.types import scored_from_json


class Written:
    """Reads a Tracker's folder back in the words of the fake."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def steps(self):
        rows = read_jsonl(self.folder / "metrics.jsonl")
        return {row["step"]: {k: v for k, v in row.items() if k not in ("step", "seconds")} for row in rows}

    @property
    def evaluations(self):
        return read_jsonl(self.folder / "evaluations.jsonl")

    @property
    def rollouts(self):
        files = sorted((self.folder / "samples").glob("*.jsonl"))
        return {int(path.stem[-6:]): tuple(scored_from_json(row) for row in read_jsonl(path)) for path in files}


@pytest.fixture(params=["disk", "fake"])
def both(request: pytest.FixtureRequest, tmp_path: Path):
    """(a tracker, a view of what it has)."""
    if request.param == "fake":
        tracker = MemoryTracker()
        return tracker, tracker
    return Tracker(tmp_path / "rl", console=None, tensorboard=False, total_steps=9), Written(tmp_path / "rl")


def row(step: int, **changes):
    return {**evaluation("rl", step, skill=0.5, rng=random.Random(0), per_level=2), **changes}


def test_metrics_come_back_by_step(both):
    tracker, has = both
    tracker.log(1, {"train/loss": 0.5})
    tracker.log(3, {"train/loss": 0.25, "train/tokens": 7})
    assert has.steps == {1: {"train/loss": 0.5}, 3: {"train/loss": 0.25, "train/tokens": 7.0}}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_non_finite_metric_is_refused_by_name_and_leaves_nothing(both, value: float):
    tracker, has = both
    with pytest.raises(NonFiniteError, match=r"metric train/entropy is .* at step 2"):
        tracker.log(2, {"train/loss": 0.5, "train/entropy": value})
    assert has.steps == {}


@pytest.mark.parametrize("value", [None, "high"])
def test_a_metric_that_is_no_number_is_refused_by_name(both, value):
    tracker, _ = both
    with pytest.raises(ValueError, match="metric train/lr of step 1"):
        tracker.log(1, {"train/lr": value})


def test_a_step_is_logged_once_and_in_order(both):
    tracker, _ = both
    tracker.log(4, {"train/loss": 0.5})
    for step in (4, 3):
        with pytest.raises(ValueError, match=f"metrics of step {step} after those of step 4"):
            tracker.log(step, {"train/loss": 0.5})


def test_the_lines_own_names_are_not_metrics(both):
    tracker, _ = both
    with pytest.raises(ValueError, match="'seconds' is taken"):
        tracker.log(1, {"seconds": 2.0})


def test_samples_come_back_equal_and_the_same_step_replaces_them(both):
    tracker, has = both
    tracker.samples(2, [scored(), scored(sample=1)])
    tracker.samples(2, [scored(text="é \u2028 </script> #### 3")])
    assert has.rollouts == {2: (scored(text="é \u2028 </script> #### 3"),)}


def test_evaluations_keep_their_order_and_a_repeated_one_replaces_the_old(both):
    tracker, has = both
    tracker.evaluation(row(0))
    tracker.evaluation(row(5))
    tracker.evaluation(row(5, split="gsm8k"))
    tracker.evaluation({**row(5), "pass@1": 0.125})
    assert [(one["step"], one["split"]) for one in has.evaluations] == [(0, "heldout"), (5, "gsm8k"), (5, "heldout")]
    assert has.evaluations[-1]["pass@1"] == 0.125


def test_an_evaluation_with_a_gap_or_a_nan_is_refused(both):
    tracker, has = both
    with pytest.raises(ValueError, match="lacks pass@k"):
        tracker.evaluation({k: v for k, v in row(1).items() if k != "pass@k"})
    with pytest.raises(NonFiniteError, match="greedy of all levels is nan"):
        tracker.evaluation(row(1, greedy=math.nan))
    assert has.evaluations == []


def test_resume_forgets_all_that_came_after_the_step(both):
    tracker, has = both
    for step in range(1, 6):
        tracker.log(step, {"train/loss": float(step)})
        tracker.samples(step, [scored()])
        tracker.evaluation(row(step))
    tracker.resume(3)
    assert list(has.steps) == [1, 2, 3]
    assert list(has.rollouts) == [1, 2, 3]
    assert [one["step"] for one in has.evaluations] == [1, 2, 3]
    tracker.log(4, {"train/loss": 0.0})
    assert has.steps[4] == {"train/loss": 0.0}


def test_resume_at_step_zero_starts_afresh(both):
    tracker, has = both
    tracker.evaluation(row(0))
    tracker.log(1, {"train/loss": 1.0})
    tracker.resume(0)
    tracker.log(1, {"train/loss": 2.0})
    assert has.steps == {1: {"train/loss": 2.0}}
    assert len(has.evaluations) == 1


def test_a_torn_last_line_is_dropped_and_the_step_can_be_logged_again(tmp_path: Path):
    first = Tracker(tmp_path, console=None, tensorboard=False, total_steps=3)
    first.log(1, {"train/loss": 1.0})
    first.evaluation(row(1))
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        with (tmp_path / name).open("a") as file:
            file.write('{"step": 2, "seco')
    second = Tracker(tmp_path, console=None, tensorboard=False, total_steps=3)
    second.log(2, {"train/loss": 2.0})
    assert Written(tmp_path).steps == {1: {"train/loss": 1.0}, 2: {"train/loss": 2.0}}
    assert len(Written(tmp_path).evaluations) == 1


def test_a_whole_line_without_its_newline_counts_as_torn(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "seconds": 1.0}\n{"step": 2, "seconds": 2.0}')
    Tracker(tmp_path, console=None, tensorboard=False, total_steps=3)
    assert list(Written(tmp_path).steps) == [1]


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "seconds": 1.0}\n{oops\n{"step": 3, "seconds": 2.0}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2"):
        Tracker(tmp_path, console=None, tensorboard=False, total_steps=3)


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
        "import sys, tempfile, pathlib, ansatz.track.report, ansatz.track.rollouts, ansatz.track.fake\n"
        "import ansatz.evaluate.estimators\nfrom ansatz.track import Tracker\n"
        "Tracker(pathlib.Path(tempfile.mkdtemp()), console=None, total_steps=1).log(1, {'train/loss': 1.0})\n"
        "print(sorted({'torch', 'tensorflow', 'transformers'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
