"""GRPO with an environment, from end to end: it opens the conversation, its observations have no loss, and a killed run
ends in the same bits."""

from pathlib import Path

import pytest
from test_resume import assert_same_checkpoints
from toy_runs import command, kill_in, toy_recipe

from ansatz.track.jsonl import read_jsonl
from benchmarks.faults.fingerprint import untimed

pytestmark = pytest.mark.e2e

CHANGES = {
    "data": {"sft": None},
    # An untrained model hits these turn ends often, and its responses have several turns.
    "environment": {"name": f"{Path(__file__).parents[1] / 'environments' / 'echo.py'}:Greeting", "turns": 3},
    "rollout": {"max_response_tokens": 40, "partial_rollout_tokens": 15},
    "train": {"steps": 6, "lr": 1e-3, "max_logprob_gap": 1.001},
    "save": {"every": 2},
    "rewards": {"environment": {}},
}


def test_a_killed_run_with_an_environment_ends_in_the_same_bits(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    recipes = [toy_recipe(tmp_path / name, CHANGES) for name in "ab"]
    code, _, err = command("train", recipes[0])
    assert code == 0, err
    whole, killed = (tmp_path / name / "runs" / "toy" / "rl" for name in "ab")
    logged = kill_in(killed, after=3, arguments=["train", recipes[1]])
    assert 3 <= logged[-1] < 6
    code, _, err = command("train", "--resume", killed.parent)
    assert code == 0, err

    rows = read_jsonl(whole / "metrics.jsonl")
    assert min(row["rollout/observed_frac"] for row in rows) > 0.2
    assert len({row["reward/environment"] for row in rows}) > 3
    assert max(row["rollout/observations"] for row in rows) > 0.5
    assert untimed(rows) == untimed(read_jsonl(killed / "metrics.jsonl"))
    assert max(row["rollout/partial"] for row in rows) > 0
    assert untimed(read_jsonl(whole / "evaluations.jsonl")) == untimed(read_jsonl(killed / "evaluations.jsonl"))
    assert_same_checkpoints(whole, killed)
    for folder in (whole, killed):
        groups = read_jsonl(folder / "samples" / "step-000006.groups.jsonl")
        assert groups
        for row in groups:
            assert f"\nRule {row['problem']}: be brief.\n" in row["prompt"]
