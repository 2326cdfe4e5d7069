from __future__ import annotations

import pytest
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


def test_the_folder_in_the_repositorys_root_is_the_packaged_one():
    assert (REPOSITORY / "recipes").resolve() == packaged_recipes()[0].path.parent.resolve()
