"""Every number of a recipe has a range: nan, infinities and absurd sizes are refused wherever a number is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel
from toy_runs import toy, toy_config

from ansatz.config.load import check, load_recipe, parse_yaml
from ansatz.config.recipe import default_class, section_at
from ansatz.errors import ConfigError
from ansatz.objectives.build import COMPONENTS, build_objective
from ansatz.objectives.components import SIGNED, build_component
from ansatz.objectives.preference import DIVERGENCES, PREFERENCES
from ansatz.registry import Registry, settings_of
from ansatz.rewards.base import rewards
from ansatz.train.optimizers import bind_optimizer

ABSURD = [".nan", ".inf", "-.inf", "1e30", "-1e30", "'nan'", "'inf'", "1" + 20 * "0"]


def kinds_of(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from kinds_of(inner)


def number_keys(*names: str) -> Iterator[str]:
    """The dotted names of all keys of the schema that take a number."""
    section = section_at(names)
    assert section is not None
    for key, field in section.model_fields.items():
        if section_at([*names, key]) is not None:
            yield from number_keys(*names, key)
        elif {int, float} & set(kinds_of(field.annotation)):
            yield ".".join([*names, key])


KEYS = sorted(number_keys())


def at(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def test_the_keys_are_those_of_the_schema():
    assert {"train.lr", "rollout.temperature", "cluster.stall", "train.max_logprob_gap", "reward_model.lr"} <= set(KEYS)
    assert len(KEYS) > 90


@pytest.mark.parametrize("key", KEYS)
def test_every_number_of_the_schema_refuses_what_is_none(tmp_path, key):
    with_section = {"reward_model": {}} if key.startswith("reward_model") else {}
    for text in [*ABSURD, "true"]:
        if text == "true" and {bool} & set(kinds_of(field_of(key).annotation)):
            continue
        with pytest.raises(ConfigError, match=key.rpartition(".")[2]):
            check(toy(tmp_path, {**with_section, **at(key, parse_yaml(text, where="a value"))}))


def field_of(key: str) -> Any:
    *parents, last = key.split(".")
    section = section_at(parents)
    assert section is not None
    assert issubclass(section, BaseModel)
    return section.model_fields[last]


@pytest.mark.parametrize("key", KEYS)
def test_every_number_of_the_schema_refuses_negative_ones(tmp_path, key):
    with_section = {"reward_model": {}} if key.startswith("reward_model") else {}
    with pytest.raises(ConfigError, match=key.rpartition(".")[2]):
        check(toy(tmp_path, {**with_section, **at(key, -1)}))


REGISTRIES: list[Registry[Any]] = [*{id(each): each for each in COMPONENTS.values()}.values(), PREFERENCES, DIVERGENCES]
SETTINGS = [
    (registry, name, key)
    for registry in REGISTRIES
    for name in registry.names()
    for key, parameter in settings_of(registry.get(name)).items()
    if {int, float} & set(kinds_of(parameter.annotation))
]


def needed(registry: Registry[Any], name: str) -> dict[str, Any]:
    """A value for each setting without a default."""
    known = settings_of(registry.get(name))
    return {key: 1.0 for key, parameter in known.items() if parameter.default is parameter.empty}


def as_setting(registry: Registry[Any], name: str, key: str, value: Any) -> Any:
    """The value, in a list where the setting takes several numbers."""
    several = tuple in {
        getattr(kind, "__origin__", kind) for kind in kinds_of(settings_of(registry.get(name))[key].annotation)
    }
    return [value, 1.0] if several else value


@pytest.mark.parametrize(("registry", "name", "key"), SETTINGS, ids=lambda each: getattr(each, "kind", each))
def test_every_setting_of_a_component_has_a_range(registry, name, key):
    values = [parse_yaml(text, where="a value") for text in ABSURD]
    for value in [*values, *([] if SIGNED & {key, f"{registry.get(name).__name__}.{key}"} else [-1])]:
        setting = as_setting(registry, name, key, value)
        with pytest.raises(ConfigError, match=key):
            build_component(registry, name, {**needed(registry, name), key: setting})


NUMBERS = ("kl_coef", "policy_coef", "likelihood_coef", "max_ratio", "entropy_target", "entropy_coef")


@pytest.mark.parametrize("key", NUMBERS)
def test_every_number_of_the_objective_has_a_range(key):
    for text in [".nan", ".inf", "-.inf", "1e30"]:
        with pytest.raises(ConfigError, match=rf"algorithm\.{key} = "):
            build_objective({"preset": "grpo", key: parse_yaml(text, where="a value")})
    if key != "entropy_coef":
        with pytest.raises(ConfigError, match=rf"algorithm\.{key} = -1: expected 0 or more"):
            build_objective({"preset": "grpo", key: -1})


REWARD_SETTINGS = [
    (name, key)
    for name in rewards.names()
    for key, parameter in settings_of(rewards.get(name)).items()
    if {int, float} & set(kinds_of(parameter.annotation))
]


@pytest.mark.parametrize(("name", "key"), REWARD_SETTINGS)
def test_every_setting_of_a_reward_is_finite(name, key):
    for text in ABSURD:
        with pytest.raises(ConfigError):
            rewards.bind(name, {key: parse_yaml(text, where="a value")})


@pytest.mark.parametrize(
    "settings", [{"betas": [0.9, float("nan")]}, {"weight_decay": float("inf")}, {"betas": [2, 0.9]}]
)
def test_settings_of_an_optimizer_have_a_range(settings):
    with pytest.raises(ConfigError):
        bind_optimizer({"name": "adamw", **settings})


@pytest.mark.parametrize("text", [".nan", ".inf", "-.Inf", "1e30"])
@pytest.mark.parametrize("key", ["preference.beta", "rewards.mine.weight", "data.train.any", "environment.timeout_s"])
def test_no_number_of_a_recipe_is_infinite_or_nan_wherever_it_stands(tmp_path, text, key):
    recipe = toy(tmp_path, at(key, parse_yaml(text, where="a value")))
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    with pytest.raises(ConfigError, match=rf"{key} = .*: it should be a (finite number|number of at most)"):
        load_recipe(path)
    path.write_text(yaml.safe_dump(toy(tmp_path)))
    with pytest.raises(ConfigError, match=rf"{key} = "):
        load_recipe(path, overrides={key: text})
    with pytest.raises(ConfigError, match="stages = "):
        check(toy(tmp_path, {"stages": [{"stage": "rl", "train": {"lr": parse_yaml(text, where="a value")}}]}))


def test_an_empty_list_of_stages_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"stages = \[\]: nothing would be trained"):
        toy_config(tmp_path, {"stages": []})


def test_the_largest_sensible_values_are_accepted(tmp_path):
    rollout = {"temperature": 1000.0, "samples_per_prompt": 2}
    config = toy_config(tmp_path, {"train": {"lr": 1000.0}, "rollout": rollout, "cluster": {"stall": 1e9}})
    assert isinstance(config, default_class())
    assert build_objective({"preset": "grpo", "entropy_coef": -0.01, "kl_coef": 0}).entropy_coef == -0.01
