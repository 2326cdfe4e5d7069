import pytest
from pydantic import BaseModel, ValidationError
from toy_runs import toy_config

from ansatz.config.recipe import default_class
from ansatz.config.schema import flat_keys


def is_section(annotation):
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def test_a_config_is_frozen_in_every_section(tmp_path):
    config = toy_config(tmp_path)
    for section in (config, config.train, config.data, config.rollout, config.evaluate, config.save, config.model):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(section, next(iter(type(section).model_fields)), None)


def test_derived_numbers(tmp_path):
    config = toy_config(tmp_path, {"train": {"updates_per_step": 2, "epochs_per_step": 3}})
    assert config.rollout.rollouts_per_step == 16
    assert config.train.optimizer_steps_per_step == 6
    assert config.run_dir == tmp_path / "runs" / "toy"


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({}, ("problems", "model", "sft", "rl")),
        ({"data": {"sft": None}}, ("problems", "model", "rl")),
        ({"sft": {"steps": 0}}, ("problems", "model", "rl")),
        ({"train": {"steps": 0}}, ("problems", "model", "sft")),
        ({"train": {"steps": 0}, "sft": {"steps": 0}}, ("problems", "model")),
    ],
)
def test_a_stage_without_steps_is_left_out(tmp_path, changes, stages):
    assert toy_config(tmp_path, changes).stage_names == stages


def test_flat_keys_are_dotted_names():
    assert flat_keys({"a": 1, "b": {"c": 2, "d": {"e": 3}}, "f": {}}) == {"a": 1, "b.c": 2, "b.d.e": 3, "f": {}}


RECIPE = default_class()


@pytest.mark.parametrize(
    "section", [field.annotation for field in RECIPE.model_fields.values() if is_section(field.annotation)], ids=str
)
def test_every_section_and_every_key_is_described(section):
    """docs/config.md and the help of the commands are generated from these docstrings."""
    assert section.__doc__
    assert_described(section)


def test_every_key_outside_the_sections_is_described():
    assert_described(RECIPE)


def assert_described(model):
    for name, field in model.model_fields.items():
        if model is not RECIPE and is_section(field.annotation):
            assert field.annotation.__doc__
            assert_described(field.annotation)
        assert is_section(field.annotation) or (field.description or "").endswith("."), name


def test_several_held_out_sets_are_the_parts_of_one_mixture(tmp_path):
    sets = {"easy": {"source": "jsonl", "path": "a.jsonl"}, "hard": {"source": "jsonl", "path": "b", "split": "test"}}
    data = toy_config(tmp_path).data.model_dump()
    heldout = RECIPE.model_validate({"name": "x", "data": {**data, "heldout": sets}}).data.heldout
    assert heldout == {
        "source": "mixture",
        "split": "heldout",
        "whole": True,
        "parts": [
            {"split": "heldout", **sets["easy"], "name": "easy"},
            {**sets["hard"], "name": "hard"},
        ],
    }
    with pytest.raises(ValidationError, match=r"hard\.source is missing"):
        RECIPE.model_validate({"name": "x", "data": {**data, "heldout": {**sets, "hard": {"path": "b.jsonl"}}}})
