"""`ansatz eval` and `ansatz compare` in real processes, one of them killed."""

import json
import shutil
import signal
import time

import pytest
from safetensors.torch import load_file, save_file
from toy_runs import TOY, command, start

from ansatz.data.base import load_problems
from ansatz.evaluate.suites import load_suite
from ansatz.models.tiny import build_tiny_model

pytestmark = pytest.mark.e2e

HOW = [
    "--samples-per-prompt",
    "2",
    "--problems",
    "40",
    "--batch",
    "4",
    "--max-response-tokens",
    "60",
    "--template",
    "tiny",
    "--threads",
    "1",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    stories = load_problems("word_problems", split="train", settings={"count": 100})
    build_tiny_model(folder, texts=[story.question for story in stories], **TOY["model"]["tiny"])
    return folder


def evaluate(model, out, *more):
    code, printed, err = command("eval", model, "--suite", "word_problems", *HOW, "--out", out, *more)
    assert code == 0, err
    return printed


def files(folder):
    return {file.name: content for file, content in contents(folder).items()}


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_an_evaluation_that_is_killed_ends_in_the_same_bytes_and_can_be_rescored(model, tmp_path):
    printed = evaluate(model, tmp_path / "whole")
    assert "word_problems: 40 problems x 2" in printed

    process = start("eval", model, "--suite", "word_problems", *HOW, "--out", tmp_path / "killed")
    rollouts = tmp_path / "killed" / "rollouts.jsonl"
    deadline = time.monotonic() + 200
    while not rollouts.exists() or rollouts.read_bytes().count(b"\n") < 10:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = rollouts.read_bytes().count(b"\n")
    assert process.returncode == -signal.SIGKILL
    assert 10 <= left < 80
    assert not (tmp_path / "killed" / "results.json").exists()

    evaluate(model, tmp_path / "killed")
    assert files(tmp_path / "killed") == files(tmp_path / "whole")

    ids = [problem.id for problem in load_suite("word_problems").evenly_spaced(40)]
    rows = [json.loads(line) for line in rollouts.read_text().splitlines()]
    assert [(row["id"], row["sample"]) for row in rows] == [(name, sample) for name in ids for sample in (0, 1)]

    (tmp_path / "killed" / "results.json").unlink()
    code, _, err = command("eval", "--rescore", tmp_path / "killed")
    assert code == 0, err
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_another_policy_or_other_settings_cannot_resume_the_same_folder(model, tmp_path):
    evaluate(model, tmp_path / "e", "--problems", "2")
    code, _, err = command(
        "eval", model, "--suite", "word_problems", *HOW, "--out", tmp_path / "e", "--problems", "2", "--seed", "1"
    )
    assert code == 2
    assert "holds responses with seed = 0; this command has 1" in err


def test_a_budget_curve_closes_thoughts_and_is_computed_from_its_folders(model, tmp_path):
    out = tmp_path / "curve"
    printed = evaluate(model, out, "--problems", "4", "--thinking-budgets", "0,6", "--closing", "</think> So")
    assert "word_problems by thinking budget" in printed
    tight, free = (out / "budget-6", out / "budget-none")
    rows = [json.loads(line) for line in (tight / "rollouts.jsonl").read_text().splitlines()]
    assert len(rows) == 8
    assert all("</think> So" in row["response"] for row in rows if row["tokens"] > 6)
    assert any(row["tokens"] > 6 for row in rows)
    assert "</think>" not in (free / "rollouts.jsonl").read_text()
    curve = json.loads((out / "budgets.json").read_text())
    assert [row["budget"] for row in curve["rows"]] == [6, 0]
    assert (out / "budgets.svg").read_text().startswith("<svg")

    before = contents(out)
    (out / "budgets.json").unlink()
    code, _, err = command("eval", "--rescore", out)
    assert code == 0, err
    assert contents(out) == before

    how = ["--suite", "word_problems", *HOW, "--thinking-budgets", "59", "--out", tmp_path / "full"]
    code, _, err = command("eval", model, *how)
    assert code == 2
    assert "leave no room for an answer within --max-response-tokens 60" in err
    assert not (tmp_path / "full").exists()


def test_thoughts_are_made_to_go_on_up_to_their_least_budget(model, tmp_path):
    """The policy often ends: the end token's row of the (tied) embedding is longer."""
    shutil.copytree(model, tmp_path / "model")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    end = json.loads((model / "config.json").read_text())["eos_token_id"]
    weights["model.embed_tokens.weight"][end] *= 20
    save_file(weights, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    printed = evaluate(tmp_path / "model", tmp_path / "curve", "--problems", "4", "--thinking-budgets", "0,+30")
    assert "'Wait' made thoughts go on" in printed
    rows = {
        budget: [json.loads(line) for line in (tmp_path / "curve" / budget / "rollouts.jsonl").read_text().splitlines()]
        for budget in ("budget-none", "budget-min30")
    }
    assert min(row["tokens"] for row in rows["budget-none"]) < 30 < min(row["tokens"] for row in rows["budget-min30"])
    assert not any("token_ids" in row for row in rows["budget-min30"] if "Wait" in row["response"])
    curve = json.loads((tmp_path / "curve" / "budgets.json").read_text())
    assert [row["budget"] for row in curve["rows"]] == [0, -30]
