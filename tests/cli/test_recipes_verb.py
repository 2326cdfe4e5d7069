from __future__ import annotations

import yaml

from ansatz.config.packaged import OVERLAYS, packaged_recipes


def test_recipes_lists_every_recipe_and_overlay_in_a_line_that_begins_with_the_hardware(ansatz):
    code, out, _ = ansatz("recipes")
    assert code == 0
    known = [*packaged_recipes(), *packaged_recipes(OVERLAYS)]
    assert len(out.splitlines()) == len(known)
    for recipe in known:
        line = next(line for line in out.splitlines() if f" {recipe.name}  {recipe.summary}" in line)
        assert line.startswith(f"{recipe.hardware.partition(' ')[0] or 'CPU'} ")


def test_recipes_prints_one_of_them_whole(ansatz):
    code, out, _ = ansatz("recipes", "tiny_arithmetic_grpo_cpu")
    assert (code, yaml.safe_load(out)["name"]) == (0, "tiny_arithmetic_grpo_cpu")


def test_an_unknown_recipe_is_one_sentence(ansatz):
    code, out, err = ansatz("recipes", "tiny_aritmetic_grpo_cpu")
    assert (code, out) == (2, "")
    assert "Did you mean 'tiny_arithmetic_grpo_cpu'?" in err
