"""The JSON schema of recipes accepts what the loader accepts, and refuses wrong keys, names and numbers."""

from __future__ import annotations

import functools
import json
import re

import pytest
from jsonschema import Draft7Validator
from toy_runs import REPOSITORY

from ansatz.certify.recipe_schema import recipe_schema
from ansatz.config.load import dump, load_recipe, parse_yaml
from ansatz.config.packaged import FOLDER, OVERLAYS, STARTER
from ansatz.config.recipe import default_class

RECIPES = [*sorted(FOLDER.glob("*.yaml")), STARTER / "recipe.yaml"]
WRONG = {
    "a key of a section": "train: {lrr: 1}",
    "a section": "trian: {lr: 1}",
    "a number below its range": "train: {lr: -1}",
    "a number above its range": "rollout: {top_p: 1.5}",
    "a text instead of a number": "rollout: {temperature: hot}",
    "a source": "data: {train: {source: jsonx}}",
    "a setting of a source": "data: {train: {source: jsonl, pat: x}}",
    "a setting of any source": "data: {train: {pat: x}}",
    "a setting of the curriculum": "data: {curriculum: {samplr: x}}",
    "a size of the tiny model": "model: {tiny: {hidden: 3}}",
    "a setting of adapters": "model: {lora: {rnk: 3}}",
    "a reward": "rewards: {math_answers: {}}",
    "a setting of a reward": "rewards: {math_answer: {mod: strict}}",
    "a value of a setting": "rewards: {math_answer: {mode: loose}}",
    "a setting that the grader fills in": "rewards: {math_answer: {pool: 1}}",
    "a key of the algorithm": "algorithm: {presett: grpo}",
    "a preset": "algorithm: {preset: grpoo}",
    "a project": "algorithm: {defaults_of: trll}",
    "a component": "algorithm: {surrogate: clipp}",
    "a setting of a component": "algorithm: {surrogate: {name: clip, lower: 0.2}}",
    "a setting of any component": "algorithm: {surrogate: {lower: 0.2}}",
    "an anchor": "algorithm: {anchor: new}",
    "an engine": "rollout: {engine: {name: vlm}}",
    "a setting of an optimizer": "train: {optimizer: {name: adamw, beta: 3}}",
    "a setting of an environment": "environment: {name: calculator, turn: 3}",
    "a stage": "stages: [sfft]",
    "no stage": "stages: []",
    "a section of a stage": "stages: [{stage: rl, rewards: {}}]",
    "a setting of rejection sampling": "rejection: {round: 3}",
    "a preference loss": "preference: {losses: {dpoo: {}}}",
    "a setting of sampled pairs": "preference: {pairs: {source: policy, top: 3}}",
    "a kind of reward model": "reward_model: {kind: procss}",
    "a rule of the watchdog": "watchdog: {rules: {mine: {metrics: x}}}",
}
RIGHT = {
    "a source of one's own": "data: {train: {source: 'my.py:problems', anything: 1}}",
    "a reward of one's own": "rewards: {'my.py:brief': {weight: 0.1, max_tokens: 40}}",
    "a preset of a file": "algorithm: {preset: mine.yaml}",
    "a component of one's own": "algorithm: {surrogate: 'mine.py:loss', advantage: {name: 'mine.py:adv', scale: 2}}",
    "a component with the length limit": "algorithm: {weights: {name: fixed_length, max_tokens: max_response_tokens}}",
    "several masks": "algorithm: {masks: [overlong, {name: rejection, low: 0.5}]}",
    "the preset's component with a setting": "algorithm: {surrogate: {low: 0.2, high: 0.28}}",
    "no whitening": "algorithm: {whiten: none, value: null}",
    "stages with changes": "stages: [sft, {stage: rl, train: {steps: 3}, data: {curriculum: {sampler: uniform}}}]",
    "a stage of one's own": "stages: [sft, mine.py:Mine, {stage: mine.py:Mine, train: {lr: 1}}]\nmine: {steps: 3}",
    "a text of the chat template": "data: {template: {name: chat, system: Think., arguments: {enable_thinking: true}}}",
}


@functools.cache
def validator(*, overlay: bool) -> Draft7Validator:
    schema = recipe_schema(overlay=overlay)
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def faults(text: str, *, overlay: bool = True) -> list[str]:
    """What is wrong with a recipe."""
    return [error.message[:200] for error in validator(overlay=overlay).iter_errors(parse_yaml(text, where="it"))]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_installed_recipe_is_valid_as_it_is_and_with_all_defaults_filled_in(path):
    assert faults(path.read_text(encoding="utf-8"), overlay=False) == []
    assert faults(dump(load_recipe(path)), overlay=False) == []


@pytest.mark.parametrize("path", sorted(OVERLAYS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_installed_overlay_is_valid_as_an_overlay_only(path):
    assert faults(path.read_text(encoding="utf-8")) == []
    assert faults(path.read_text(encoding="utf-8"), overlay=False) != []


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(text):
    assert faults(text) != []


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_the_users_own_code_takes_is_accepted(text):
    assert faults(text) == []


def test_required_keys_and_settings_are_missed_in_a_recipe_and_not_in_an_overlay():
    text = "name: mine\ndata: {train: {source: jsonl, split: train}, heldout: {source: word_problems, split: heldout}}"
    assert any("'path' is a required property" in fault for fault in faults(text, overlay=False))
    assert faults(text) == []
    assert any("'name' is a required property" in fault for fault in faults("seed: 1", overlay=False))


def test_only_an_overlay_removes_a_reward_with_null():
    assert faults("rewards: {math_answer: null}") == []
    recipe = (STARTER / "recipe.yaml").read_text(encoding="utf-8")
    assert faults(re.sub(r"^rewards:$", "rewards:\n  length: null", recipe, flags=re.M), overlay=False) != []


def test_recipes_on_the_pages_are_valid():
    """Blocks of YAML that have sections of a recipe, whole or in part."""
    shown = []
    for page in sorted((REPOSITORY / "docs").rglob("*.md")):
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M):
            keys = re.findall(r"^(\w+):", block, re.M)
            known = default_class().model_fields.keys()
            is_recipe = set(keys) <= known and not re.search(r"^\w+:\s+{?source:", block, re.M)
            if keys and is_recipe and len(keys) == len(set(keys)):  # not alternatives, one below the other
                shown.append(page.name)
                assert faults(block.replace(", ...}", "}")) == [], f"{page.name}:\n{block}"
    assert len(shown) > 20


def test_keys_have_the_descriptions_of_the_reference():
    schema = recipe_schema()
    sections = schema["$defs"]
    assert "Learning rate" in sections["TrainSection"]["properties"]["lr"]["description"]
    strict = sections["Rewards"]["properties"]["math_answer"]["allOf"][0]["properties"]["mode"]
    assert strict["enum"][0] == "strict"
    assert strict["description"]
    assert "\n" not in json.dumps([section.get("description", "") for section in sections.values()])
