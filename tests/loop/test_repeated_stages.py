"""A stage that the recipe lists twice: its folders, what it starts from, and how such a run is resumed and extended."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from toy_runs import different_results, kill_in, toy_config

from ansatz.config.load import load_recipe, load_run
from ansatz.errors import ConfigError
from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl

SMALL = {
    "sft": {"steps": 0},
    "train": {"steps": 2},
    "rollout": {"max_response_tokens": 16},
    "evaluate": {"every": 0},
    "save": {"tensorboard": False},
    "rewards": {"math_answer": {"weight": 0}, f"{Path(__file__).with_name('user_rewards.py')}:every_other": {}},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twice")
    return folder, run_pipeline(toy_config(folder, {**SMALL, "stages": ["rl", "rl"]}))


def digest(path):
    return hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()


def prompts(run, stage):
    return [row["problem"] for row in read_jsonl(run / stage / "samples" / "step-000001.jsonl")]


def test_a_repeated_stage_has_a_folder_of_its_own_and_continues_with_the_model_before(finished) -> None:
    _, run = finished
    assert (run / "rl_2" / "checkpoints" / "step-000002").is_dir()
    assert json.loads((run / "summary.json").read_text())["model"].endswith("rl_2/checkpoints/step-000002")
    assert digest(run / "rl_2" / "checkpoints" / "step-000002") != digest(run / "rl" / "checkpoints" / "step-000002")
    evaluations = json.loads((run / "summary.json").read_text())["evaluations"]
    assert [row["stage"] for row in evaluations] == ["model", "rl", "rl_2"]


def test_a_repeated_stage_takes_its_problems_in_another_order(finished) -> None:
    _, run = finished
    assert prompts(run, "rl") != prompts(run, "rl_2")


def test_the_first_entry_is_the_run_without_a_list(finished, tmp_path) -> None:
    _, run = finished
    alone = run_pipeline(toy_config(tmp_path, SMALL))
    last = "rl/checkpoints/step-000002"
    assert digest(alone / last) == digest(run / last)


def test_a_run_that_is_extended_by_an_entry_equals_one_with_the_whole_list(finished, tmp_path) -> None:
    _, run = finished
    run_pipeline(toy_config(tmp_path, {**SMALL, "stages": ["rl"]}))
    extended = run_pipeline(toy_config(tmp_path, {**SMALL, "stages": ["rl", "rl"]}), resume=True)
    last = "rl_2/checkpoints/step-000002"
    assert digest(extended / last) == digest(run / last)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stages": ["sft", "rl", "rl"], "sft": {"steps": 1}}, "the stage sft has not begun, but rl_2, which comes"),
        ({"stages": ["rl", "rl"], "train": {"steps": 3}}, "the stage rl is finished, and rl_2 has begun from its"),
    ],
)
def test_what_earlier_stages_did_cannot_be_changed_by_resuming(finished, tmp_path, changes, sentence) -> None:
    folder, _ = finished
    shutil.copytree(folder / "runs", tmp_path / "runs")
    with pytest.raises(ConfigError) as error:
        run_pipeline(toy_config(tmp_path, {**SMALL, **changes}), resume=True, allow_changes=True)
    assert sentence in str(error.value)


ARITHMETIC = {"source": "arithmetic", "split": "train", "count": 20, "seed": 5, "max_level": 1}
OTHER = [
    "sft",
    {"stage": "rl", "rewards": {"math_answer": {"weight": 1}}},
    {"stage": "sft", "data": {"sft": ARITHMETIC, "template": "boxed"}},
    {"stage": "rl", "data": {"train": ARITHMETIC}, "rewards": {"format": {"weight": 0.5}}},
]
PIPELINE = {
    **SMALL,
    "sft": {"steps": 1},
    "rollout": {"max_response_tokens": 24, "max_prompt_tokens": 400},
    "stages": OTHER,
}


def test_an_entry_has_data_a_template_and_rewards_of_its_own(tmp_path: Path) -> None:
    run = run_pipeline(toy_config(tmp_path, PIPELINE))
    files = sorted(path.name.partition("-")[0] for path in (run / "problems").glob("*.jsonl"))
    assert files == ["heldout.jsonl", "sft", "sft.jsonl", "train", "train.jsonl"]
    first, second = (read_jsonl(run / stage / "samples" / "step-000001.jsonl") for stage in ("rl", "rl_2"))
    assert {row["problem"].partition("-")[0] for row in first} == {"word_problems"}
    assert {row["problem"].partition("-")[0] for row in second} == {"arithmetic"}
    assert second[0]["parts"].keys() - first[0]["parts"].keys() == {"format"}
    evaluated = read_jsonl(run / "rl_2" / "evaluations.jsonl")
    assert evaluated  # with the rewards of the run, so that stages compare
    assert not any("format" in key for row in evaluated for key in row)


def test_an_entry_that_is_added_later_cannot_bring_other_problems(tmp_path: Path) -> None:
    run_pipeline(toy_config(tmp_path, {**SMALL, "stages": ["rl"]}))
    added = {"stage": "rl", "data": {"train": ARITHMETIC}}
    with pytest.raises(ConfigError, match=r"an entry names problems for data.train that this run did not store"):
        run_pipeline(toy_config(tmp_path, {**SMALL, "stages": ["rl", added]}), resume=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stages"),
    [("r1", ["sft", "rl", "rejection_1", "rl_2"]), ("qwen3", ["sft", "rl", "sft_2", "rl_2"])],
)
def test_a_pipeline_that_is_killed_in_each_stage_ends_with_the_same_bits(tmp_path: Path, name: str, stages: list[str]):
    recipe = f"tiny_arithmetic_{name}_cpu"
    toy = {"model.toy": "true", "threads": "1", "save.every": "1", "save.tensorboard": "false"}
    whole = run_pipeline(load_recipe(recipe, overrides={**toy, "out": str(tmp_path / "whole")}))
    killed = tmp_path / "killed" / whole.name
    options = [text for key, value in toy.items() for text in (f"--{key}", value)]
    arguments = ["train", recipe, *options, "--out", killed.parent]
    for stage in stages:
        kill_in(killed / stage, after=1, arguments=arguments)
        arguments = ["train", "--resume", killed]
    run_pipeline(load_run(killed), resume=True)
    assert different_results(whole, killed) == []
