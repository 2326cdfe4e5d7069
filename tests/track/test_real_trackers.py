"""Runs are sent to the real packages of trackers, without a network: `make test-foreign`."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import tomllib

import pytest
from made_up import make_pipeline
from toy_runs import REPOSITORY

from ansatz.track.jsonl import read_jsonl, write_jsonl
from ansatz.track.sinks import names

STEPS = range(1, 5)


def needs(package):
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")


@pytest.fixture
def sweep(tmp_path):
    """Two runs of a sweep: one has ended, the other has made two of its four steps of RL."""
    folder = tmp_path / "sweep"
    for arm in ("00-control", "01-other"):
        run = make_pipeline(folder / "block-0000" / arm, sft_steps=2, rl_steps=4)
        (run / "report.html").write_text("<p>report", encoding="utf-8")
    return folder


@pytest.fixture
def send(sweep, tmp_path):
    """Sends the sweep in two goes, from processes of their own, the second after a resumed run has ended."""

    def send(tracker, **environment):
        command = [sys.executable, "-m", "ansatz", "track", str(sweep), "--to", tracker, "--group", "my_sweep"]
        metrics = sweep / "block-0000" / "01-other" / "rl" / "metrics.jsonl"
        rows = read_jsonl(metrics)
        write_jsonl(metrics, rows[:2])
        for _ in range(2):
            done = subprocess.run(
                command, cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"{tracker} has 2 run(s)" in done.stdout
            write_jsonl(metrics, rows)

    return send


def test_every_tracker_has_an_extra_of_its_name():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(names()) <= project["optional-dependencies"].keys()


@needs("mlflow")
def test_mlflow_has_each_point_once_a_table_per_step_the_report_and_the_group(send, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = f"file:{tmp_path / 'mlruns'}"
    send("mlflow", MLFLOW_TRACKING_URI=store)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(store)
    runs = client.search_runs([client.get_experiment_by_name("ansatz").experiment_id])
    children = {run.info.run_name: run for run in runs}
    assert children.keys() == {"block-0000/00-control", "block-0000/01-other"}
    for run in children.values():
        assert run.data.tags["group"] == "my_sweep"
        assert run.data.params["rollout.prompts_per_step"] == "32"
        assert run.info.status == "FINISHED"
        for name in ("rl/train.loss", "rl/eval.heldout.pass_1"):
            assert [point.step for point in client.get_metric_history(run.info.run_id, name)] == list(STEPS)
        files = [file.path for file in client.list_artifacts(run.info.run_id, "samples/rl")]
        assert files == [f"samples/rl/step-{step:06d}.json" for step in STEPS]
        assert "report.html" in [file.path for file in client.list_artifacts(run.info.run_id)]


@needs("trackio")
def test_trackio_has_each_point_once_a_table_per_step_the_report_and_the_group(send, tmp_path):
    send("trackio", TRACKIO_DIR=str(tmp_path / "store"))
    with sqlite3.connect(tmp_path / "store" / "ansatz.db") as store:
        rows = store.execute("SELECT run_name, step, metrics FROM metrics").fetchall()
        configs = store.execute("SELECT run_name, config FROM configs").fetchall()
    points = [(name, step, json.loads(values)) for name, step, values in rows]
    assert {name.rpartition("-")[0] for name, _ in configs} == {"block-0000/00-control", "block-0000/01-other"}
    assert all(json.loads(config)["_Group"] == "my_sweep" for _, config in configs)
    for run in {name for name, *_ in points}:
        for metric in ("rl/train/loss", "rl/samples"):
            assert sorted(step for name, step, values in points if name == run and metric in values) == list(STEPS)
    tables = [values["rl/samples"] for _, _, values in points if "rl/samples" in values]
    assert len({json.dumps(table) for table in tables}) == len(STEPS)  # both runs have the same responses
    assert any(path.read_text() == "<p>report" for path in (tmp_path / "store").rglob("sha256/*/*"))


def log_records(content):
    """The records of a file of W&B: after 7 bytes, blocks of 32 KiB as in a log of LevelDB. A part of a record begins
    with 4 bytes of checksum, 2 of length and 1 of type: 1 is whole, 2 the first part, 3 another one, 4 the last."""
    place, record = 7, b""
    while place + 7 <= len(content):
        room = 32768 - place % 32768
        if room < 7:
            place += room
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        record = content[place + 7 : place + 7 + length] if kind in (1, 2) else record + content[place + 7 :][:length]
        place += 7 + length
        if kind in (1, 4):
            yield record


@needs("wandb")
def test_wandb_has_each_point_once_a_table_per_step_the_report_and_the_group(send, sweep):
    send("wandb", WANDB_MODE="offline")
    from wandb.proto.wandb_internal_pb2 import Record

    for run in sorted((sweep / "block-0000").iterdir()):
        parts = sorted((run / "trackers" / "wandb").glob("offline-run-*/*.wandb"))
        records = [Record.FromString(data) for path in parts for data in log_records(path.read_bytes())]
        opened = [record.run for record in records if record.WhichOneof("record_type") == "run"]
        assert {each.run_id for each in opened} == {opened[0].run_id}
        assert {each.run_group for each in opened} == {"my_sweep"}
        history = [
            {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            for record in records
            if record.WhichOneof("record_type") == "history"
        ]
        assert [row["rl/step"] for row in history if "rl/train/loss" in row] == list(STEPS)
        assert [row["rl/step"] for row in history if "rl/samples/_type" in row] == list(STEPS)
        assert len(list(run.rglob("media/table/rl/samples_*.table.json"))) == len(STEPS)
        assert [r.artifact.type for r in records if r.WhichOneof("record_type") == "artifact"].count("report") == 1
        assert len(parts) == (2 if run.name == "01-other" else 1)
