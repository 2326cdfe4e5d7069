from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from made_up import problem, scored

from ansatz.errors import DataError
from ansatz.track.health import health_checks
from ansatz.track.jsonl import write_jsonl
from ansatz.track.rollout_examples import stories
from ansatz.track.runs import StageRun, read_pipeline
from ansatz.types import to_json


def stage(folder: Path, **curves: list[float]) -> StageRun:
    """Keyword names have __ for /: train__entropy."""
    named = {name.replace("__", "/"): values for name, values in curves.items()}
    length = max((len(values) for values in named.values()), default=0)
    rows = [
        {"step": step + 1, "seconds": float(step), **{name: values[step] for name, values in named.items()}}
        for step in range(length)
    ]
    return StageRun(name="rl", folder=folder, metrics=tuple(rows), evaluations=())


def test_stages_come_in_the_order_of_the_summary_whatever_the_age_of_their_files(pipeline: Path, tmp_path: Path):
    run = read_pipeline(pipeline)
    assert [one.name for one in run.stages if one.evaluations] == ["model", "sft", "rl"]
    for place, name in enumerate(("b_second", "a_third", "c_first")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text('{"step": 1, "seconds": 1.0}\n')
        os.utime(tmp_path / name / "metrics.jsonl", (1000, 1000 - 10 * place))
    order = ("c_first", "b_second", "a_third")
    evaluations = [{"stage": name, "step": 1, "split": "heldout"} for name in order]
    (tmp_path / "summary.json").write_text(json.dumps({"seconds": 1.0, "evaluations": evaluations}))
    assert [one.name for one in read_pipeline(tmp_path).stages] == list(order)


def test_without_a_summary_the_older_stage_comes_first(tmp_path: Path):
    for age, name in enumerate(("rl", "sft")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("x: 1\n")
        os.utime(tmp_path / name / "config.yaml", (1000 - age, 1000 - age))
    assert [one.name for one in read_pipeline(tmp_path).stages] == ["sft", "rl"]


def test_a_folder_that_is_no_pipeline_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"is no pipeline folder.*runs/NAME"):
        read_pipeline(tmp_path / "absent")


def test_a_healthy_stage_has_no_warning(tmp_path: Path):
    found = health_checks(stage(tmp_path, train__entropy=[0.5] * 20, align__mean_gap=[1.001] * 20))
    assert [sign.fine for sign in found] == [True, True]


@pytest.mark.parametrize(
    ("name", "values", "word"),
    [
        ("train__entropy", [0.5] * 10 + [0.01] * 10, "Exploration has ended"),
        ("rollout__repetition", [0.0] * 10 + [0.4] * 10, "loops"),
        ("rollout__truncated_frac", [0.0] * 10 + [0.4] * 10, "max_response_tokens"),
        ("rollout__groups_with_signal_frac", [0.8] * 10 + [0.0] * 10, "problems"),
        ("align__mean_gap", [1.0] * 10 + [1.2] + [1.0] * 9, "step 11"),
        ("rollout__verdict__crashed", [0.0] * 10 + [0.1] + [0.0] * 9, "not graded"),
    ],
)
def test_each_way_to_collapse_is_seen_and_named(tmp_path: Path, name: str, values: list[float], word: str):
    (sign,) = health_checks(stage(tmp_path, **{name: values}))
    assert not sign.fine
    assert word in sign.text


def test_a_bad_start_that_healed_is_no_warning(tmp_path: Path):
    (sign,) = health_checks(stage(tmp_path, rollout__truncated_frac=[0.9] * 5 + [0.0] * 45))
    assert sign.fine


def save(folder: Path, step: int, *rollouts):
    write_jsonl(folder / "samples" / f"step-{step:06d}.jsonl", (to_json(one) for one in rollouts))


def test_a_story_follows_one_problem_through_its_first_middle_and_last_step(tmp_path: Path):
    for step in (1, 2, 3, 4, 5):
        save(tmp_path, step, scored(problem(index=7), text=f"step {step}"), scored(problem(index=step + 50)))
    (story,) = stories(stage(tmp_path))
    assert story.one_problem
    assert [moment.step for moment in story.moments] == [1, 3, 5]
    assert story.moments[1].shown.rollout.text == "step 3"


def test_a_moment_shows_the_first_sample_and_counts_the_right_ones(tmp_path: Path):
    from ansatz.types import Reason

    for step in (1, 2):
        save(tmp_path, step, scored(sample=1), scored(sample=0, reason=Reason.DIFFERENT, text="#### 5"))
    (story,) = stories(stage(tmp_path))
    assert story.moments[0].shown.rollout.sample == 0
    assert story.moments[0].correct == (False, True)


def test_without_a_problem_that_comes_back_a_story_follows_a_level(tmp_path: Path):
    for step in (1, 2, 3):
        save(tmp_path, step, *(scored(problem(index=10 * step + int(level), level=level)) for level in ("2", "3")))
    found = stories(stage(tmp_path))
    assert [[moment.problem.level for moment in story.moments] for story in found] == [["2"] * 3, ["3"] * 3]
    assert not found[0].one_problem


def test_stories_take_a_level_each_before_a_second_of_one(tmp_path: Path):
    for step in (1, 9):
        save(tmp_path, step, *(scored(problem(index=i, level="2" if i < 6 else "5")) for i in range(8)))
    assert [story.moments[0].problem.level for story in stories(stage(tmp_path), most=2)] == ["2", "5"]


def test_a_stage_without_samples_has_no_stories(tmp_path: Path):
    assert stories(stage(tmp_path)) == []
