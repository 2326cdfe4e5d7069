from __future__ import annotations

import re

import pytest
import yaml
from toy_runs import REPOSITORY

from ansatz.config.load import load_recipe
from ansatz.config.packaged import OVERLAYS, packaged_recipes, recipe_path
from ansatz.errors import ConfigError


def test_a_packaged_recipe_is_found_by_name_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = load_recipe("tiny_arithmetic_grpo_cpu", overlays=["1x24gib"])
    assert config.name == "tiny_arithmetic_grpo_cpu"
    assert config.train.optimizer["name"] == "adamw_offload"


def test_a_file_wins_over_a_packaged_recipe_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "tiny_arithmetic_grpo_cpu"
    mine.write_text("name: mine")
    assert recipe_path("tiny_arithmetic_grpo_cpu").resolve() == mine


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no installed recipe of that name\. Did you mean 'tiny_gsm8k_grpo_cpu'"):
        recipe_path("tiny_gsm8k_grpo")


def test_every_recipe_and_overlay_has_a_one_line_summary():
    for recipe in [*packaged_recipes(), *packaged_recipes(OVERLAYS)]:
        assert 30 < len(recipe.summary) <= 120
        assert recipe.summary.endswith(".")


@pytest.mark.parametrize("recipe", [*packaged_recipes(), *packaged_recipes(OVERLAYS)], ids=lambda recipe: recipe.name)
def test_a_file_that_an_installed_recipe_names_is_published_and_its_comment_says_where(recipe):
    text = recipe.path.read_text(encoding="utf-8")
    named = {value for value in texts_of(yaml.safe_load(text)) if names_a_file(value)}
    sources = {
        "data/orz_math_57k_collected.json": "# from github.com/Open-Reasoner-Zero/Open-Reasoner-Zero",
        "data/boba_106k_0319_prompt_1024.jsonl": "from the data set inclusionAI/AReaL-boba-Data of the hub",
        "examples/verifiers_sums.py:Sums": "the file examples/verifiers_sums.py",
    }
    assert [file for file in named if sources.get(file, "nowhere") not in text] == []


def test_paths_are_told_from_names_of_the_hub_and_from_other_texts():
    assert names_a_file("../shared/data/gsm8k/original_train.jsonl")
    assert names_a_file("my.jsonl")
    assert names_a_file("/data/train.jsonl")
    assert names_a_file("rewards.py:mine")
    assert not any(map(names_a_file, ("openai/gsm8k", "Qwen/Qwen2.5-1.5B-Instruct", "http://a.b:8089/v1", "a b.")))


def texts_of(value):
    if isinstance(value, dict):
        return {text for inner in value.values() for text in texts_of(inner)}
    if isinstance(value, list):
        return {text for inner in value for text in texts_of(inner)}
    return {value} if isinstance(value, str) else set()


def names_a_file(text):
    return bool(re.fullmatch(r"(\.{0,2}/|~)\S+|\S+\.(jsonl?|csv|parquet|txt|ya?ml|py)(\.gz|\.zst)?(:\w+)?", text))


def test_the_folder_in_the_repositorys_root_is_the_packaged_one():
    assert (REPOSITORY / "recipes").resolve() == packaged_recipes()[0].path.parent.resolve()
