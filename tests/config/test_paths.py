from __future__ import annotations

from pathlib import Path

import pytest

from ansatz.config.load import load_recipe, load_run
from ansatz.config.paths import beside_recipe

RECIPE = """
name: mine
data:
  template: my_template.txt
  sft: null
  train: {source: mixture, split: train, of: [{source: jsonl, path: data/train.jsonl}, {source: "my_source.py:rows"}]}
  heldout: {source: jsonl, split: test, path: elsewhere.jsonl}
model: {path: my_model}
rollout: {max_response_tokens: 64}
rewards: {"my_rewards.py:brief": {weight: 0.1}, math_answer: {}}
algorithm: {preset: grpo}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    recipe = tmp_path / "project"
    (recipe / "data").mkdir(parents=True)
    (recipe / "my_model").mkdir()
    (recipe / "grpo").mkdir()  # a folder that has the name of a preset
    for name in ("my_template.txt", "data/train.jsonl", "my_source.py", "my_rewards.py"):
        (recipe / name).touch()
    (recipe / "recipe.yaml").write_text(RECIPE)
    return recipe


def test_files_next_to_the_recipe_are_found_from_any_folder(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = load_recipe("project/recipe.yaml")
    assert config.data.template == str(folder / "my_template.txt")
    assert config.model.path == str(folder / "my_model")
    assert [part.get("path") for part in config.data.train["of"]] == [str(folder / "data" / "train.jsonl"), None]
    assert config.data.train["of"][1]["source"] == f"{folder / 'my_source.py'}:rows"
    assert set(config.rewards) == {f"{folder / 'my_rewards.py'}:brief", "math_answer"}


def test_names_and_files_that_are_not_there_stay_as_they_are(folder):
    config = load_recipe(folder / "recipe.yaml")
    assert config.algorithm == {"preset": "grpo"}
    assert config.data.heldout["path"] == "elsewhere.jsonl"


def test_paths_on_the_command_line_are_relative_to_the_current_folder(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = load_recipe("project/recipe.yaml", overrides={"model.path": "my_model"})
    assert config.model.path == "my_model"


def test_an_empty_path_and_an_absolute_path_are_left_alone(folder):
    data = {"path": "", "teacher": "/no/such/model"}
    assert beside_recipe(data, folder) == data


def test_templates_with_settings_models_of_rewards_data_sets_and_presets_in_code_are_found(folder):
    text, model = str(folder / "my_template.txt"), str(folder / "my_model")
    data = {
        "data": {"template": {"name": "my_template.txt"}, "train": {"source": "hub", "dataset": "data"}},
        "evaluate": {"template": {"name": "chat", "user": "my_template.txt"}},
        "rewards": {"learned": {"model": "my_model"}, "math_answer": {}},
        "algorithm": {"preset": "my_rewards.py:row"},
        "judge": {"prompt": {"template": "data/train.jsonl"}},
    }
    assert beside_recipe(data, folder) == {
        "data": {"template": {"name": text}, "train": {"source": "hub", "dataset": str(folder / "data")}},
        "evaluate": {"template": {"name": "chat", "user": text}},
        "rewards": {"learned": {"model": model}, "math_answer": {}},
        "algorithm": {"preset": f"{folder / 'my_rewards.py'}:row"},
        "judge": {"prompt": {"template": str(folder / "data" / "train.jsonl")}},
    }
    plain = {
        "name": "data",
        "template": {"name": "my_model", "user": "data"},
        "rewards": {"judge": {"model": "my_model"}, "learned": {"model": "us/other"}},
        "train": {"source": "hub", "dataset": "us/other", "name": "my_template.txt"},
    }
    assert beside_recipe(plain, folder) == plain


def test_the_config_of_a_run_keeps_its_paths_whatever_is_in_the_run_folder(folder):
    (folder / "config.yaml").write_text(RECIPE)
    assert load_run(folder).model.path == "my_model"
