"""A chain of curricula: easy problems first, then problems in proportion to how often they fail."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from toy_runs import different_results, kill_in, toy_recipe

from ansatz.config import load_recipe
from ansatz.config.stage_list import stage_entries
from ansatz.data.store import read_problems
from ansatz.errors import ConfigError
from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl
from ansatz.track.step_files import SAMPLES, groups_path, step_files
from ansatz.train.checkpoint import loop_state

CHAIN: dict[str, Any] = {
    "sft": {"steps": 0},
    "train": {"steps": 2},
    "rollout": {"max_response_tokens": 16},
    "evaluate": {"every": 0},
    "save": {"tensorboard": False, "every": 1},
    "data": {"train": {"count": 8}, "curriculum": {"sampler": "easy_to_hard"}},
    "stages": ["rl", {"stage": "rl", "data": {"curriculum": {"sampler": "one_minus_success"}}}],
    "rewards": {"math_answer": {"weight": 0}, f"{Path(__file__).with_name('user_rewards.py')}:every_other": {}},
}


def counts(run: Path, stages: tuple[str, ...]) -> dict[str, list[float]]:
    """[correct, wrong] of each problem, from the stored responses."""
    samples = [each for stage in stages for file in step_files(run / stage, SAMPLES) for each in read_jsonl(file.path)]
    tried = Counter(each["problem"] for each in samples)
    right = Counter(each["problem"] for each in samples if each["correct"])
    return {name: [float(right[name]), float(tried[name] - right[name])] for name in tried}


def known(run: Path, stage: str) -> dict[str, list[float]]:
    """The same as the curriculum of the stage's last checkpoint knows it."""
    state = loop_state(sorted((run / stage / "checkpoints").iterdir())[-1])["stream"]["curriculum"]
    problems = read_problems(run / "problems" / "train.jsonl")
    return {problems[index].id: row[:2] for index, *row in state["tried"]}


def test_the_second_curriculum_begins_with_what_the_first_has_learned(tmp_path: Path) -> None:
    run = run_pipeline(load_recipe(toy_recipe(tmp_path, CHAIN)))
    assert known(run, "rl") == counts(run, ("rl",))
    assert known(run, "rl_2") == counts(run, ("rl", "rl_2")) != counts(run, ("rl_2",))
    assert loop_state(run / "rl_2/checkpoints/step-000002")["stream"]["curriculum"]["step"] == 4
    first, second = (
        [int(row["level"]) for row in read_jsonl(groups_path(file.path))] for file in step_files(run / "rl", SAMPLES)
    )
    assert max(first) <= min(second)


def test_a_run_that_is_killed_in_the_second_stage_ends_with_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = run_pipeline(load_recipe(toy_recipe(tmp_path / "whole", CHAIN)))
    recipe = toy_recipe(tmp_path / "killed", CHAIN)
    killed = tmp_path / "killed" / "runs" / "toy"
    kill_in(killed / "rl_2", after=1, arguments=["train", recipe])
    run_pipeline(load_recipe(recipe), resume=True)
    assert different_results(whole, killed) == []


def test_an_entry_changes_the_curriculum_but_not_what_belongs_to_the_run(tmp_path: Path) -> None:
    *_, first, second = stage_entries(load_recipe(toy_recipe(tmp_path, CHAIN)))
    assert first.config.data.curriculum == {"sampler": "easy_to_hard"}
    assert second.config.data.curriculum == {"sampler": "one_minus_success"}
    assert second.config.data.train == first.config.data.train
    for data in ({"unfit": "drop"}, {"curriculum": {}, "heldout": {}}, 3, {}):
        with pytest.raises(ConfigError, match=r"it changes 'data.*', but an entry can change only .* data\.curriculum"):
            stage_entries(load_recipe(toy_recipe(tmp_path, {**CHAIN, "stages": [{"stage": "rl", "data": data}]})))
