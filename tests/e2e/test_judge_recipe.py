"""The recipe with a judge: killed, resumed, and with the agreement of judge and verifier in its metrics."""

from __future__ import annotations

import pytest
from toy_runs import REPOSITORY, command, kill_in

from ansatz.track.jsonl import read_jsonl
from benchmarks.faults.fingerprint import differences
from examples.judge_server import judge_server

RECIPE = REPOSITORY / "recipes" / "tiny_arithmetic_judge_cpu.yaml"
QUICK = [
    *("--sft.steps", "60", "--sft.decay_steps", "0", "--sft.batch_size", "16", "--data.sft.count", "500"),
    *("--rollout.prompts_per_step", "4", "--evaluate.problems", "4", "--evaluate.every", "0", "--save.every", "2"),
    *("--train.steps", "5", "--train.warmup_steps", "1", "--threads", "1"),
]


@pytest.mark.slow
def test_the_judge_recipe_ends_with_the_same_bits_when_it_is_killed_and_resumed(tmp_path):
    with judge_server(error_frac=0.3) as url:

        def arguments(name):
            cache = str(tmp_path / f"{name}.sqlite")
            judge = ("--rewards.judge.url", url, "--rewards.judge.cache", cache)
            return ["train", str(RECIPE), "--out", tmp_path / name, "--name", "run", *judge, *QUICK]

        code, _, err = command(*arguments("whole"))
        assert code == 0, err
        kill_in(tmp_path / "killed" / "run" / "rl", after=3, arguments=arguments("killed"))
        code, _, err = command("train", "--resume", tmp_path / "killed" / "run")
        assert code == 0, err
    whole, killed = tmp_path / "whole" / "run", tmp_path / "killed" / "run"
    assert not differences(whole, killed, with_recipe=False)  # each has a cache of its own
    rows = read_jsonl(killed / "rl" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert all(0 <= row["reward/agreement"] <= 1 for row in rows)
    assert any(row["reward/agreement"] < 1 for row in rows)
