from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ansatz.config.watchdog import RuleSettings, WatchdogSection
from ansatz.errors import DataError
from ansatz.track.health import checks_of, health_checks
from ansatz.track.runs import StageRun, read_pipeline


def stage(folder: Path, **curves: list[float]) -> StageRun:
    """A stage of RL. Keyword names have __ for /: train__entropy."""
    named = {name.replace("__", "/"): values for name, values in curves.items()}
    length = max((len(values) for values in named.values()), default=0)
    rows = [
        {"step": step + 1, "seconds": float(step), **{name: values[step] for name, values in named.items()}}
        for step in range(length)
    ]
    return StageRun(name="rl", folder=folder, metrics=tuple(rows), evaluations=())


def health_checks_of(run: StageRun):
    return health_checks(run, WatchdogSection())


def test_stages_come_in_the_order_of_the_summary_whatever_the_age_of_their_files(pipeline: Path, tmp_path: Path):
    run = read_pipeline(pipeline)
    assert [each_stage.name for each_stage in run.stages if each_stage.evaluations] == ["model", "sft", "rl"]
    for place, name in enumerate(("b_second", "a_third", "c_first")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text('{"step": 1, "seconds": 1.0}\n')
        os.utime(tmp_path / name / "metrics.jsonl", (1000, 1000 - 10 * place))
    order = ("c_first", "b_second", "a_third")
    scores = dict.fromkeys(("pass@1", "greedy", "pass@k", "maj@k", "mean_length", "truncated_frac"), 0.5)
    evaluations = [{"stage": name, "step": 1, "split": "heldout", **scores} for name in order]
    (tmp_path / "summary.json").write_text(json.dumps({"seconds": 1.0, "evaluations": evaluations}))
    assert [each_stage.name for each_stage in read_pipeline(tmp_path).stages] == list(order)


def test_without_a_summary_the_older_stage_comes_first(tmp_path: Path):
    for age, name in enumerate(("rl", "sft")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("x: 1\n")
        os.utime(tmp_path / name / "config.yaml", (1000 - age, 1000 - age))
    assert [each_stage.name for each_stage in read_pipeline(tmp_path).stages] == ["sft", "rl"]


def test_a_folder_that_is_no_pipeline_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"is not a run folder.*runs/NAME"):
        read_pipeline(tmp_path / "absent")


def test_a_healthy_stage_has_no_warning(tmp_path: Path):
    length = [30.0] * 20
    curves = {"train__entropy": [0.5] * 20, "align__mean_exp_gap": [1.001] * 20, "rollout__response_length": length}
    found = health_checks_of(stage(tmp_path, **curves))
    assert [sign.fine for sign in found] == [True, True, True]


def test_a_stage_without_rollouts_has_no_exploration_to_end(tmp_path: Path):
    """SFT learns demonstrations by heart on purpose; an update that was skipped is a fault in every stage."""
    found = health_checks_of(stage(tmp_path, train__entropy=[0.001] * 20, train__skipped_steps=[0.0] * 19 + [1.0]))
    assert [(sign.title, sign.fine) for sign in found] == [("Skipped updates", False)]


@pytest.mark.parametrize(
    ("name", "values", "word"),
    [
        ("rollout__response_length", [28.0] * 5 + [1.0] * 15, "guesses"),
        ("rollout__repetition", [0.0] * 10 + [0.4] * 10, "loops"),
        ("rollout__truncated_frac", [0.0] * 10 + [0.4] * 10, "max_response_tokens"),
        ("rollout__groups_with_signal_frac", [0.8] * 10 + [0.0] * 10, "problems"),
        ("align__mean_exp_gap", [1.0] * 10 + [1.2] + [1.0] * 9, "step 11"),
        ("rollout__verdict__crashed", [0.0] * 10 + [0.1] + [0.0] * 9, "not graded"),
    ],
)
def test_each_way_to_collapse_is_seen_and_named(tmp_path: Path, name: str, values: list[float], word: str):
    sign, *others = health_checks_of(stage(tmp_path, **{name: values}))
    assert not sign.fine
    assert word in sign.text
    assert all(not other.fine and "(rule " in other.title for other in others)


@pytest.mark.parametrize("condition", [{"below": 0.1}, {"falls_to": 0.5}])
def test_the_worst_step_of_a_metric_that_falls_is_its_smallest(tmp_path: Path, condition: dict[str, float]):
    rule = RuleSettings(metric="rollout/accuracy", window=1, **condition)
    run = stage(tmp_path, rollout__accuracy=[0.5, 0.0, 0.6])
    (sign,) = [each for each in health_checks(run, WatchdogSection(rules={"mine": rule})) if not each.fine]
    assert sign.text.startswith("at least 0 (step 2; alarm: below ")


def test_a_stage_is_checked_by_the_rules_of_its_own_recipe(tmp_path: Path):
    """Entries of the list of stages can change the section watchdog."""
    for name, limit in (("", 0.1), ("rl", 0.1), ("rl_2", 0.9)):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        rule = f"{{metric: rollout/accuracy, below: {limit}, window: 1}}"
        (folder / "config.yaml").write_text(f"watchdog:\n  rules:\n    mine: {rule}\n")
        if name:
            row = {"step": 1, "seconds": 1.0, "rollout/accuracy": 0.5}
            (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    checks = checks_of(read_pipeline(tmp_path))
    assert {name: [each.fine for each in found] for name, found in checks.items()} == {"rl": [True], "rl_2": [False]}


def test_a_bad_start_that_healed_is_no_warning(tmp_path: Path):
    (sign,) = health_checks_of(stage(tmp_path, rollout__truncated_frac=[0.9] * 5 + [0.0] * 45))
    assert sign.fine
