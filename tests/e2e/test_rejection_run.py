"""Rejection sampling on correct answers: a run killed while it samples and while it trains ends in the same bytes."""

import json
import signal
import time

import pytest
from toy_runs import REPOSITORY, command, start, toy_recipe

from ansatz.track.jsonl import read_jsonl

pytestmark = pytest.mark.e2e

SUMS = {"source": f"{REPOSITORY / 'tests' / 'e2e' / 'sums.py'}:sums", "largest": 3}
CHANGES = {
    "data": {
        "sft": {**SUMS, "split": "train", "count": 2000, "seed": 1, "slip_rate": 0.5},
        "train": {**SUMS, "split": "train", "count": 200, "seed": 2},
        "heldout": {**SUMS, "split": "heldout", "count": 40, "seed": 3},
    },
    "model": {"tiny": {"vocab_size": 300, "max_context": 64}},
    "sft": {"steps": 110, "batch_size": 16, "lr": 1e-2},
    "rollout": {"max_response_tokens": 24, "max_prompt_tokens": 40},
    "rejection": {"samples_per_prompt": 4, "per_prompt": 2, "batch": 8, "sft": {"steps": 40, "lr": 3e-3}},
    "train": {"steps": 0},
    "evaluate": {"problems": 40, "samples_per_prompt": 8, "k": 8},
    "save": {"every": 15, "tensorboard": False},
}


def killed(lines, *arguments):
    """Run the command until each file of (file, number of lines) has that many lines, then kill it."""
    process = start(*arguments)
    deadline = time.monotonic() + 200
    file, count = lines
    while not file.exists() or file.read_bytes().count(b"\n") < count:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    return file.read_bytes().count(b"\n")


def untimed(rows):
    return [{k: v for k, v in row.items() if k != "seconds" and not k.startswith(("time/", "perf/"))} for row in rows]


@pytest.mark.slow
def test_a_round_that_is_killed_twice_ends_in_the_same_bytes_and_raises_the_score(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    code, out, err = command("train", toy_recipe(tmp_path / "a", CHANGES))
    assert code == 0, err
    assert "rejection_1" in out
    whole, cut = (tmp_path / name / "runs" / "toy" for name in "ab")
    stage = cut / "rejection_1"
    sampled = killed((stage / "responses" / "rollouts.jsonl", 100), "train", toy_recipe(tmp_path / "b", CHANGES))
    assert sampled < 800
    assert not (stage / "selected.jsonl").exists()
    taught = killed((stage / "metrics.jsonl", 21), "train", "--resume", cut)
    assert taught < 41
    code, _, err = command("train", "--resume", cut)
    assert code == 0, err

    files = ("responses/rollouts.jsonl", "selected.jsonl", "checkpoints/step-000040/model.safetensors")
    for name in (*files, "checkpoints/step-000040/training/optimizer.safetensors"):
        assert (stage / name).read_bytes() == (whole / "rejection_1" / name).read_bytes(), name
    rows = [untimed(read_jsonl(run / "rejection_1" / "metrics.jsonl")) for run in (whole, cut)]
    assert rows[0] == rows[1]
    assert [row["step"] for row in rows[0]] == list(range(41))
    assert len(read_jsonl(stage / "responses" / "rollouts.jsonl")) == 800

    _, before, after = json.loads((whole / "summary.json").read_text())["evaluations"]
    assert (before["stage"], after["stage"]) == ("sft", "rejection_1")
    assert after["pass@1"] > before["pass@1"] + 0.1
    selected = read_jsonl(whole / "rejection_1" / "selected.jsonl")
    assert all(row["solution"].endswith(f"\\boxed{{{row['answer']}}}") for row in selected)
