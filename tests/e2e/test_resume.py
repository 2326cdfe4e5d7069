"""A run killed in the middle of each stage and resumed equals one that was left alone."""

import json
import signal
import time
from pathlib import Path

import pytest
from toy_runs import command, start, toy_recipe

from ansatz.track.jsonl import read_jsonl

pytestmark = pytest.mark.e2e

REWARD = f"{Path(__file__).parents[1] / 'loop' / 'mine.py'}:every_other"
CHANGES = {
    "model": {"dtype": "bfloat16"},  # weights, masters and moments are three different things then
    "sft": {"steps": 60},
    "train": {"steps": 24, "updates_per_step": 2},
    "save": {"every": 7},
    "evaluate": {"every": 5},
    "rewards": {"math_answer": {"weight": 0}, REWARD: {}},
}


def kill_in(stage: Path, *, after: int, arguments) -> list[int]:
    """Runs the command until the stage has logged `after` steps, kills it, and gives the steps logged by then."""
    process = start(*arguments)
    deadline = time.monotonic() + 200
    while not (stage / "metrics.jsonl").exists() or len(read_jsonl(stage / "metrics.jsonl")) < after:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (stage / "done.json").exists()
    return [row["step"] for row in read_jsonl(stage / "metrics.jsonl")]


def untimed(value):
    if isinstance(value, dict):
        slow = ("time/", "perf/")
        return {k: untimed(v) for k, v in value.items() if k != "seconds" and not k.startswith(slow)}
    return [untimed(one) for one in value] if isinstance(value, list) else value


def test_a_run_killed_twice_equals_one_that_was_left_alone(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    code, _, err = command("train", toy_recipe(tmp_path / "a", CHANGES))
    assert code == 0, err
    whole, killed = (tmp_path / name / "runs" / "toy" for name in "ab")

    first = kill_in(killed / "sft", after=10, arguments=["train", toy_recipe(tmp_path / "b", CHANGES)])
    assert 10 <= first[-1] < 60
    second = kill_in(killed / "rl", after=9, arguments=["train", "--resume", killed])
    assert 9 <= second[-1] < 24
    code, out, err = command("train", "--resume", killed)
    assert code == 0, err
    assert "Report to open:" in out

    for stage, steps in (("sft", 60), ("rl", 24)):
        rows = [read_jsonl(run / stage / "metrics.jsonl") for run in (whole, killed)]
        assert [row["step"] for row in rows[1]] == list(range(1, steps + 1))
        assert untimed(rows[0]) == untimed(rows[1])
        names = [path.name for path in sorted((whole / stage / "checkpoints").iterdir())]
        assert names[-1] == f"step-{steps:06d}"
        assert names == [path.name for path in sorted((killed / stage / "checkpoints").glob("step-*"))]
        for name in names:
            for file in ("model.safetensors", "optimizer.safetensors"):
                paths = [run / stage / "checkpoints" / name / file for run in (whole, killed)]
                assert paths[0].read_bytes() == paths[1].read_bytes(), (stage, name, file)
    for stage in ("model", "sft", "rl"):
        evaluations = [untimed(read_jsonl(run / stage / "evaluations.jsonl")) for run in (whole, killed)]
        assert evaluations[0] == evaluations[1]
    for step in range(1, 25):
        samples = [untimed(read_jsonl(run / "rl" / "samples" / f"step-{step:06d}.jsonl")) for run in (whole, killed)]
        assert samples[0] == samples[1]
    summaries = [json.loads((run / "summary.json").read_text()) for run in (whole, killed)]
    assert summaries[1]["model"] == str(killed / "rl" / "checkpoints" / "step-000024")
    assert untimed(summaries[0]["evaluations"]) == untimed(summaries[1]["evaluations"])
    assert summaries[1]["seconds"] > 0
