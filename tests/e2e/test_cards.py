"""A run has one chain: made in one process, by three workers, and after ten kills at random moments."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from toy_runs import REPOSITORY, command, kill_in, start_anew, toy_recipe

from ansatz.repeat.card import read_card

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STEPS = {"sft": 40, "rl": 24}
CHANGES: dict[str, Any] = {
    "data": {"sft": {"count": 200}},
    "sft": {"steps": STEPS["sft"]},
    "train": {"steps": STEPS["rl"], "lr": 1e-3},
    "rollout": {"lag": 1},
    "algorithm": {"preset": "grpo", "correction": "truncate"},
    "rewards": {"math_answer": {"weight": 0}, "repetition": {"ngram": 1}},
    "save": {"every": 2},
    "evaluate": {"every": 0},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    code, _, err = command("train", toy_recipe(folder, CHANGES))
    assert code == 0, err
    return folder / "runs" / "toy"


def test_a_run_that_is_killed_ten_times_has_the_same_chain(whole: Path, tmp_path: Path):
    moments = random.Random(7)
    kills = [(stage, step) for stage in STEPS for step in sorted(moments.sample(range(3, STEPS[stage] - 6), 5))]
    killed, arguments = tmp_path / "runs" / "toy", ["train", toy_recipe(tmp_path, CHANGES)]
    for stage, step in kills:
        assert kill_in(killed / stage, after=step, arguments=arguments)[-1] < STEPS[stage]
        arguments = ["train", "--resume", killed]
    code, _, err = command(*arguments)
    assert code == 0, err
    assert read_card(killed).chain == read_card(whole).chain
    assert read_card(killed).stages == read_card(whole).stages


@pytest.mark.cluster
def test_three_workers_repeat_the_run_of_one_process(whole: Path, tmp_path: Path):
    code, out, err = command("repeat", whole, "--out", tmp_path, "--cluster.workers", "3", timeout_s=900)
    assert code == 0, out + err
    assert f"same bits to the end ({sum(STEPS.values())} steps)" in out
    assert f"the chain {read_card(whole).chain}" in out


@pytest.mark.cluster
def test_two_trainer_ranks_are_named_as_the_cause(whole: Path, tmp_path: Path):
    options = "--cluster.trainers", "2", "--steps", "sft/1:4"
    code, out, err = command("repeat", whole, "--out", tmp_path, *options, timeout_s=900)
    assert code == 1, out + err
    assert "weights: different from step 1 of sft on" in out
    assert "cause: trainer ranks: 0 there, 2 here" in out


def test_the_card_in_the_repository_repeats_its_first_steps(tmp_path: Path):
    """Made in portable arithmetic, on one thread."""
    card = REPOSITORY / "examples" / "demo_card.json"
    process = start_anew("repeat", card, "--out", tmp_path, "--steps", "sft/1:5")  # which starts itself once more
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, out + err
    assert "same bits in steps sft/1:5 (5 steps)" in out
