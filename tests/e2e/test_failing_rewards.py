"""Rewards that hang, return nonsense or cannot be reached, with real processes."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest
from toy_runs import command, start, toy_recipe

from ansatz.track.jsonl import read_jsonl

sys.path.insert(0, str(Path(__file__).parents[1] / "rewards"))

from chat_server import ChatServer
from test_signals import all_gone, checkpoints, hanging, wait_for_hang

from benchmarks.faults.fingerprint import differences, without_older_checkpoints
from benchmarks.faults.processes import descendants

pytestmark = pytest.mark.e2e

REWARDS = Path(__file__).parents[1] / "loop" / "user_rewards.py"
CHANGES = {
    "data": {"sft": None},
    "train": {"steps": 5},
    "save": {"every": 100, "tensorboard": False},
    "evaluate": {"every": 0},
    "grader_workers": 2,
}


def changed(whole, disturbed):
    """The results that differ. The two recipes name files in different folders, so they are not compared."""
    return without_older_checkpoints(differences(whole, disturbed, with_recipe=False), disturbed)


def recipe(folder, rewards, **changes):
    folder.mkdir(exist_ok=True)
    return toy_recipe(folder, {**CHANGES, "rewards": rewards, **changes})


def test_a_reward_that_returns_none_ends_the_run_after_saving_and_the_run_can_be_resumed(tmp_path):
    runs = {}
    for name in ("broken", "whole"):
        settings = {"at": 3, "unless": str(tmp_path / name / "corrected")}
        rewards = {"math_answer": {"weight": 0}, f"{REWARDS}:nothing_at": settings}
        runs[name] = recipe(tmp_path / name, rewards)
    (tmp_path / "whole" / "corrected").touch()
    assert command("train", runs["whole"])[0] == 0
    code, _, err = command("train", runs["broken"])
    run = tmp_path / "broken" / "runs" / "toy"
    assert code == 2
    assert "Traceback" not in err
    assert "user_rewards.py:nothing_at' returned None for 4 rollouts of problem" in err
    assert f"Step 2 is saved in {run}/rl/checkpoints/step-000002. Resume with: ansatz train --resume {run}" in err
    (tmp_path / "broken" / "corrected").touch()
    code, _, err = command("train", "--resume", run)
    assert code == 0, err
    assert not changed(tmp_path / "whole" / "runs" / "toy", run)


def test_settings_of_the_process_that_a_reward_changes_are_put_back_and_named_once(tmp_path):
    runs = {}
    for name, changes in {"quiet": False, "rude": True}.items():
        rewards = {"math_answer": {"weight": 0}, f"{REWARDS}:settles": {"changes": changes}}
        code, _, err = command("train", recipe(tmp_path / name, rewards))
        assert code == 0, err
        runs[name] = tmp_path / name / "runs" / "toy"
    assert [name for name in changed(runs["quiet"], runs["rude"]) if not name.endswith("events.jsonl")] == []
    events = [row["text"] for row in read_jsonl(runs["rude"] / "rl" / "events.jsonl") if row["kind"] == "settings"]
    what = [text.partition(" from ")[0].removeprefix(f"reward '{REWARDS}:settles' changed ") for text in events]
    assert sorted(what) == ["the current folder", "the precision of torch's products", "torch's default type"]


def test_a_reward_that_hangs_ends_the_run_at_its_deadline(tmp_path):
    settings = {"at": 3, "unless": str(tmp_path / "never"), "deadline_s": 1}
    rewards = {"math_answer": {"weight": 0}, f"{REWARDS}:waits": settings}
    process = start("train", recipe(tmp_path, rewards), workers=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "never.waiting").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = descendants(process.pid)
    assert children
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "has not returned within 1 s for problem" in err
    assert checkpoints(tmp_path / "runs" / "toy" / "rl") == ["step-000002"]
    assert all_gone(children)[0]


def test_one_interrupt_ends_an_evaluation_whose_reward_hangs(tmp_path):
    """Issue 15: with two workers, three Ctrl-C did nothing."""
    settings = {"at": 0, "unless": str(tmp_path / "go")}
    assert command("train", recipe(tmp_path, {"math_answer": {}}, train={"steps": 0}))[0] == 0
    (tmp_path / "rewards.yaml").write_text(json.dumps({f"{REWARDS}:waits": settings}))
    (tmp_path / "suite.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    model = tmp_path / "runs" / "toy" / "model"
    arguments = ["--suite", tmp_path / "suite.jsonl", "--rewards", tmp_path / "rewards.yaml", "--out", tmp_path / "out"]
    process = start("eval", model, *arguments, "--max-response-tokens", "4", "--samples-per-prompt", "2")
    wait_for_hang(tmp_path, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_one_interrupt_saves_a_run_whose_reward_hangs_on_two_workers(tmp_path):
    process = start("train", hanging(tmp_path, at=3, grace=0.5))
    wait_for_hang(tmp_path, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 75, err
    assert checkpoints(tmp_path / "runs" / "toy" / "rl") == ["step-000002"]


def judged(folder, server, **settings):
    """A recipe whose answers go to a judge, and with a reward that gives every group a signal."""
    judge = {"url": server.url, "model": "m", "rules_first": False, "mode": "last_number", "backoff_s": 0.05}
    rewards = {"judge": {**judge, "timeout_s": 2.0, **settings}, f"{REWARDS}:every_other": {"weight": 0.5}}
    return recipe(folder, rewards)


def verdict_on(request):
    """Depends only on the request."""
    return "CORRECT" if len(request["messages"][-1]["content"]) % 2 else "INCORRECT"


def test_a_judge_that_is_down_saves_and_ends_the_run_within_its_patience(tmp_path):
    """Test 13 of the design, for all calls: a complete checkpoint, and the end after one patience."""

    def answer(request):
        return verdict_on(request) if len(read_jsonl(metrics)) < 3 else (500, "down")

    metrics = tmp_path / "runs" / "toy" / "rl" / "metrics.jsonl"
    with ChatServer(answer) as server:
        process = start("train", judged(tmp_path, server, patience_s=1.0))
        _, err = process.communicate(timeout=120)
    assert process.returncode == 75, err
    assert "Traceback" not in err
    assert "given up after 1 s; the last attempt: status 500: down. Step 3 is saved in" in err
    assert checkpoints(metrics.parent) == ["step-000003"]


def test_a_judge_that_fails_in_three_calls_of_ten_changes_no_bit_of_a_run(tmp_path):
    calls = [0]

    def fails_often(request):
        calls[0] += 1
        return ((500, "down"), (0, ""), verdict_on(request))[min(calls[0] * 7 % 20 // 3, 2)]

    for name, answer in (("whole", verdict_on), ("disturbed", fails_often)):
        with ChatServer(answer) as server:
            code, _, err = command("train", judged(tmp_path / name, server))
            assert code == 0, err
    assert calls[0] > 20
    verdicts = [
        sum(row[f"rollout/verdict/{kind}"] for kind in ("crashed", "timeout"))
        for row in read_jsonl(tmp_path / "disturbed" / "runs" / "toy" / "rl" / "metrics.jsonl")
    ]
    assert sum(verdicts) == 0
    assert not changed(tmp_path / "whole" / "runs" / "toy", tmp_path / "disturbed" / "runs" / "toy")
