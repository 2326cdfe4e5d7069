"""What every tracker keeps to, the fake included."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from fake_tracker import MemoryTracker
from made_up import evaluation_row as row
from made_up import scored, stored_group
from tracker_folder import TrackerFolder

from ansatz.errors import NonFiniteError
from ansatz.track.rollout_rows import rollout_row
from ansatz.track.tracker import Tracker


def response(*, sample: int = 0, text: str = "#### 12") -> dict[str, Any]:
    return rollout_row(scored(sample=sample, text=text), group="rl/5/heldout/0", noise_step=0, temperature=1.0)


@pytest.fixture(params=["disk", "fake"])
def both(request: pytest.FixtureRequest, tmp_path: Path):
    """(a tracker, a view of what it has)."""
    if request.param == "fake":
        tracker = MemoryTracker()
        return tracker, tracker
    return Tracker(tmp_path / "rl", console=None, tensorboard=False, total_steps=9), TrackerFolder(tmp_path / "rl")


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
        with pytest.raises(ValueError, match=f"metrics of step {step} were logged after those of step 4"):
            tracker.log(step, {"train/loss": 0.5})


def test_the_lines_own_names_are_not_metrics(both):
    tracker, _ = both
    with pytest.raises(ValueError, match="'seconds' is not a metric name"):
        tracker.log(1, {"seconds": 2.0})


def test_samples_come_back_equal_and_the_same_step_replaces_them(both):
    tracker, has = both
    group = stored_group(scored(text="é \u2028 </script> #### 3"))
    tracker.samples(2, [stored_group(scored(), scored(sample=1))])
    tracker.samples(2, [group])
    assert has.rows == {2: group.rows("rl/2", 0)}
    assert has.rows[2][0]["text"] == "é \u2028 </script> #### 3"


def test_evaluations_keep_their_order_and_a_repeated_one_replaces_the_old(both):
    tracker, has = both
    tracker.evaluation(row(0))
    tracker.evaluation(row(5))
    tracker.evaluation(row(5, split="gsm8k"))
    tracker.evaluation({**row(5), "pass@1": 0.125})
    assert [(entry["step"], entry["split"]) for entry in has.evaluations] == [
        (0, "heldout"),
        (5, "gsm8k"),
        (5, "heldout"),
    ]
    assert has.evaluations[-1]["pass@1"] == 0.125


def test_the_responses_of_an_evaluation_come_back_and_a_repeated_one_replaces_them(both):
    tracker, has = both
    tracker.evaluation(row(0))
    tracker.evaluation(row(5), [response(), response(sample=1)])
    tracker.evaluation(row(5), [response(text="\u2028 </script> #### 3")])
    tracker.evaluation(row(5, split="gsm8k"), [response()])
    assert has.responses == {("heldout", 5): [response(text="\u2028 </script> #### 3")], ("gsm8k", 5): [response()]}


def test_an_evaluation_with_a_gap_or_a_nan_is_refused(both):
    tracker, has = both
    with pytest.raises(ValueError, match="lacks pass@k"):
        tracker.evaluation({k: v for k, v in row(1).items() if k != "pass@k"})
    with pytest.raises(NonFiniteError, match="greedy of all problems is nan"):
        tracker.evaluation(row(1, greedy=math.nan))
    assert has.evaluations == []


def test_resume_forgets_all_that_came_after_the_step(both):
    tracker, has = both
    for step in range(1, 6):
        tracker.log(step, {"train/loss": float(step)})
        tracker.samples(step, [stored_group(scored())])
        tracker.evaluation(row(step), [response()])
        tracker.event(step, "skipped", "an update was skipped.", norm=1.0)
    assert tracker.has_evaluation(stage="rl", step=5)
    tracker.resume(3)
    assert not tracker.has_evaluation(stage="rl", step=5)
    assert [entry["step"] for entry in has.events] == [1, 2, 3]
    assert list(has.steps) == [1, 2, 3]
    assert list(has.rows) == [1, 2, 3]
    assert list(has.responses) == [("heldout", 1), ("heldout", 2), ("heldout", 3)]
    assert [entry["step"] for entry in has.evaluations] == [1, 2, 3]
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
