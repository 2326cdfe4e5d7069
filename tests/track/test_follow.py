"""What a run writes reaches a tracker once, whatever happens to the run, and the run never waits for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_up import make_pipeline
from toy_runs import REPOSITORY

from ansatz.errors import ConfigError
from ansatz.track.follow import MAX_ROWS, FollowedRun, Job, follow, runs_in
from ansatz.track.jsonl import read_jsonl, write_jsonl
from ansatz.track.rollbacks import Rollback, set_aside, write_rollbacks
from ansatz.track.sinks import names, opener
from ansatz.track.step_files import SAMPLES, step_files
from ansatz.trust import TrustedText

FILE_SINK = f"{Path(__file__).parent / 'file_sink.py'}:open_run"


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """What the sink was sent: rows [id, kind, ...]."""
    path = tmp_path / "sent.jsonl"
    monkeypatch.setenv("SENT", str(path))
    return lambda *kinds: [row for row in map(json.loads, path.read_text().splitlines()) if row[1] in kinds]


@pytest.fixture
def run(tmp_path):
    folder = make_pipeline(tmp_path / "runs" / "mine", sft_steps=3, rl_steps=4)
    (folder / "report.html").write_text("<p>report", encoding="utf-8")
    return folder


def send(folder, *, group="", known=None):
    """Send what is there, and return whether all of it was sent."""
    job = Job(folder=str(folder), tracker=TrustedText(FILE_SINK), group=group, known=known or {})
    return follow(job, is_over=lambda: True, say=print)


def places(rows):
    return [(row[2], row[3]) for row in rows]


def test_metrics_evaluations_samples_and_the_report_are_sent(run, sent):
    assert send(run)
    metrics = sent("metrics")
    assert places(row for row in metrics if "train/loss" in row[4]) == [
        *[("rl", step) for step in range(1, 5)],
        *[("sft", step) for step in range(1, 4)],
    ]
    scores = {(row[2], row[3]): row[4]["eval/heldout/pass@1"] for row in metrics if "eval/heldout/pass@1" in row[4]}
    stored = read_jsonl(run / "rl" / "evaluations.jsonl")
    assert {key: value for key, value in scores.items() if key[0] == "rl"} == {
        ("rl", row["step"]): row["pass@1"] for row in stored
    }
    assert {key[0] for key in scores} == {"model", "sft", "rl"}
    assert sent("artifact") == [["id-mine", "artifact", "report.html"]]
    assert [row[1] for row in sent("open", "close")] == ["open", "close"]


def test_every_step_has_a_table_of_its_own_with_questions_and_responses(run, sent):
    send(run)
    tables = sent("table")
    assert places(tables) == [("rl", step) for step in range(1, 5)]
    last = tables[-1][4]
    stored = read_jsonl(step_files(run / "rl", SAMPLES)[-1].path)
    assert [row["text"] for row in last] == [row["text"] for row in stored[:MAX_ROWS]]
    assert all(row["question"] and row["answer"] for row in last)


def test_a_second_time_sends_what_is_new_and_goes_on_with_the_same_run(run, sent):
    kept = read_jsonl(run / "rl" / "metrics.jsonl")
    write_jsonl(run / "rl" / "metrics.jsonl", kept[:2])
    send(run)
    write_jsonl(run / "rl" / "metrics.jsonl", kept)  # steps 1 and 2 were repeated by a resumed run
    send(run)
    points = places(row for row in sent("metrics") if row[2] == "rl" and "train/loss" in row[4])
    assert points == [("rl", step) for step in range(1, 5)]
    assert [row[2:] for row in sent("open")] == [["mine", "", False], ["mine", "", True]]


@pytest.mark.parametrize(
    ("target", "is_followed"),
    [("run-1", True), ("{folder}/run-1", True), ("gone", True), ("../../../outside", False), ("/etc", False)],
)
def test_links_of_a_tracker_may_lead_to_its_own_files_only(run, sent, target, is_followed):
    """The package wandb makes `latest-run` and `debug.log`, and links a log of its cache."""
    folder = run / "trackers" / "wandb"
    (folder / "run-1").mkdir(parents=True)
    (run.parent / "outside").mkdir()
    (folder / "latest-run").symlink_to(target.format(folder=folder))
    (folder / "run-1" / "debug-core.log").symlink_to("/tmp/core-debug.log")
    assert send(run) == is_followed


def test_what_a_failing_tracker_has_not_taken_is_sent_later_and_nothing_twice(run, sent, monkeypatch):
    monkeypatch.setenv("FAULT", "rl 3")
    assert not send(run)
    assert ("rl", 3) not in places(sent("metrics"))
    monkeypatch.delenv("FAULT")
    assert send(run)
    points = places(row for row in sent("metrics") if "train/loss" in row[4])
    assert sorted(points) == [*[("rl", step) for step in range(1, 5)], *[("sft", step) for step in range(1, 4)]]


def test_a_run_that_another_process_sends_is_left_out_or_waited_for_with_a_sentence(run, sent, capsys):
    job = Job(folder=str(run), tracker=TrustedText(FILE_SINK), known={})
    other, sentences = FollowedRun(run, job, say=print), []

    def release(sentence):
        sentences.append(sentence)
        other.close()

    assert not send(run)
    assert f"{run}: DataError: another process sends this run to {FILE_SINK}, so it was left out." in (
        capsys.readouterr().out
    )
    FollowedRun(run, job._replace(parent=1), say=release).close()
    assert len(sentences) == 1
    assert sentences[0].endswith("this one waits for it.")
    assert send(run)
    assert sent("metrics")


def test_steps_after_a_rollback_go_to_a_curve_of_their_own(run, sent):
    send(run)
    rows = read_jsonl(run / "rl" / "metrics.jsonl")
    rollbacks = [Rollback(from_step=4, to_step=2, rule="reward", lr_scale=0.5, attempts=1)]
    write_rollbacks(run / "rl", rollbacks)
    set_aside(run / "rl", rollbacks)
    write_jsonl(run / "rl" / "metrics.jsonl", rows[:3])
    send(run)
    points = places(row for row in sent("metrics") if row[2].startswith("rl") and "train/loss" in row[4])
    assert points == [*[("rl", step) for step in range(1, 5)], ("rl-after-rollback-1", 3)]


def test_a_copied_run_is_another_run_of_the_tracker(run, sent):
    send(run)
    copy = run.with_name("copy")
    shutil.copytree(run, copy)
    send(copy)
    assert [row[2:] for row in sent("open")] == [["mine", "", False], ["copy", "", False]]
    assert len([row for row in sent("metrics") if row[0] == "id-copy"]) == len(sent("metrics")) // 2


def test_the_runs_of_a_sweep_are_a_group_and_those_from_before_are_left_out(tmp_path, sent):
    for block, arm in (("block-0000", "00-control"), ("block-0000", "01-other"), ("block-0001", "00-control")):
        make_pipeline(tmp_path / "sweep" / block / arm, sft_steps=1, rl_steps=2)
    found = runs_in(tmp_path / "sweep")
    assert [str(Path(run).relative_to(tmp_path / "sweep")) for run in found] == [
        "block-0000/00-control",
        "block-0000/01-other",
        "block-0001/00-control",
    ]
    before = dict(list(found.items())[:1])
    send(tmp_path / "sweep", group="my_sweep", known=before)
    assert [row[2:] for row in sent("open")] == [
        ["block-0000/01-other", "my_sweep", False],
        ["block-0001/00-control", "my_sweep", False],
    ]


def test_an_unknown_tracker_and_one_that_is_not_installed_are_refused_with_what_to_do(monkeypatch):
    assert names() == ["mlflow", "trackio", "wandb"]
    with pytest.raises(ConfigError, match="Did you mean 'wandb'"):
        opener("wanbd")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"-m pip install .*mlflow-skinny"):
        opener("mlflow")


@pytest.mark.e2e
@pytest.mark.slow
def test_a_run_that_is_tracked_and_resumed_has_the_bits_of_one_that_is_not_and_no_point_twice(tmp_path, sent):
    def train(name, *words, tracked=()):
        common = [sys.executable, "-m", "ansatz", "train"]
        done = subprocess.run([*common, *words, *tracked], cwd=tmp_path, env=os.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("has the whole run." in done.stdout) == bool(tracked)
        newest = max((tmp_path / "runs" / name / "rl" / "checkpoints").iterdir())
        return (newest / "model.safetensors").read_bytes()

    recipe = str(REPOSITORY / "recipes" / "tiny_arithmetic_grpo_cpu.yaml")
    few = [recipe, "--model.toy", "true", "--sft.steps", "2", "--save.tensorboard", "false", "--train.steps"]
    tracked = ["--track", FILE_SINK]
    train("tracked", *few, "2", "--name", "tracked", tracked=tracked)
    weights = train("tracked", "--resume", "runs/tracked", "--train.steps", "4", tracked=tracked)
    assert weights == train("plain", *few, "4", "--name", "plain")
    points = places(row for row in sent("metrics") if row[2] == "rl" and "train/loss" in row[4])
    assert points == [("rl", step) for step in range(1, 5)]
    assert [row[4] for row in sent("open")] == [False, True]
