from __future__ import annotations

import pytest
import yaml

from ansatz.config.packaged import OVERLAYS, packaged_recipes


@pytest.mark.parametrize("columns", [80, 200])
def test_recipes_lists_every_recipe_and_overlay(ansatz, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = ansatz("recipes")
    assert code == 0
    for recipe in [*packaged_recipes(), *packaged_recipes(OVERLAYS)]:
        assert recipe.name in out


def test_recipes_prints_one_of_them_whole(ansatz):
    code, out, _ = ansatz("recipes", "tiny_arithmetic_grpo_cpu")
    assert (code, yaml.safe_load(out)["name"]) == (0, "tiny_arithmetic_grpo_cpu")


def test_an_unknown_recipe_is_one_sentence(ansatz):
    code, out, err = ansatz("recipes", "tiny_aritmetic_grpo_cpu")
    assert (code, out) == (2, "")
    assert "Did you mean 'tiny_arithmetic_grpo_cpu'?" in err
