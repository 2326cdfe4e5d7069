"""With a model of one's own, the defaults of the built tiny model do not apply."""

import pytest
import yaml
from toy_runs import toy, toy_config, toy_recipe

from ansatz.config import load_recipe, load_run
from ansatz.config.load import check, dump
from ansatz.config.recipe import with_own_model_defaults
from ansatz.errors import ConfigError

NAMED = {"model": {"path": "some/model"}}


def bare(tmp_path, model, rollout):
    """A recipe that gives a model and lengths, and leaves out what has a default."""
    recipe = toy(tmp_path, {"model": model})
    del recipe["data"]["template"]
    return {**recipe, "rollout": {"prompts_per_step": 4, **rollout}, "train": {}, "sft": {}}


def test_a_named_model_has_small_learning_rates_and_the_template_that_fits(tmp_path):
    config = check(bare(tmp_path, {"path": "some/model"}, {"max_response_tokens": 300}))
    assert (config.train.lr, config.train.critic.lr, config.sft.lr) == (1e-6, 1e-5, 1e-5)
    assert (config.data.template, config.rollout.max_prompt_tokens) == ("auto", 1024)
    assert config.evaluate.max_response_tokens == 300


def test_a_built_model_keeps_the_defaults_of_a_built_model(tmp_path):
    config = check(bare(tmp_path, {}, {}))
    assert (config.train.lr, config.train.critic.lr, config.sft.lr) == (1e-4, 1e-3, 2e-3)
    assert (config.data.template, config.rollout.max_prompt_tokens) == ("tiny", 256)
    assert config.rollout.max_response_tokens == 96


def test_values_that_the_recipe_gives_win(tmp_path):
    given = {"train": {"lr": 3e-5, "critic": {"lr": 2e-5}}, "sft": {"lr": 4e-5}, "rollout": {"max_prompt_tokens": 77}}
    config = toy_config(tmp_path, {**NAMED, **given})
    assert (config.train.lr, config.train.critic.lr, config.sft.lr) == (3e-5, 2e-5, 4e-5)
    assert (config.data.template, config.rollout.max_prompt_tokens) == ("tiny", 77)


def test_a_named_model_without_a_response_length_is_refused_in_one_sentence(tmp_path):
    recipe = toy_recipe(tmp_path, NAMED, without="rollout.max_response_tokens")
    with pytest.raises(ConfigError, match=r"write rollout: \{max_response_tokens: N\}") as caught:
        load_recipe(recipe)
    assert str(caught.value).startswith("rollout.max_response_tokens is missing")
    assert "\n" not in str(caught.value)
    override = {"rollout.max_response_tokens": "300"}
    assert load_recipe(recipe, overrides=override).rollout.max_response_tokens == 300


@pytest.mark.parametrize(
    ("changes", "learns_from_samples"),
    [
        ({"stages": ["preference"], "preference": {"pairs": {"source": "file", "path": "p.jsonl"}}}, False),
        ({"train": {"steps": 0}, "preference": {"pairs": {"source": "hub", "dataset": "a/b"}}}, False),
        ({"stages": ["sft", {"stage": "reward_model"}], "reward_model": {"data": {"source": "file"}}}, False),
        ({"stages": ["preference"], "preference": {"pairs": {"source": "policy"}}}, True),
        ({"preference": {"pairs": {"source": "file", "path": "p.jsonl"}}}, True),  # RL follows
        ({"stages": ["reward_model"], "reward_model": {"kind": "correctness"}}, True),
        ({"stages": ["rejection"], "rejection": {}}, True),
    ],
)
def test_a_recipe_that_learns_from_given_responses_only_needs_no_length(changes, learns_from_samples):
    recipe = {**NAMED, "data": {}, **changes}
    if learns_from_samples:
        with pytest.raises(ConfigError, match=r"rollout\.max_response_tokens is missing"):
            with_own_model_defaults(recipe)
    else:
        assert with_own_model_defaults(recipe)["rollout"]["max_response_tokens"] == 2048


def test_at_toy_size_lengths_need_not_be_given(tmp_path):
    recipe = toy_recipe(tmp_path, NAMED, without="rollout.max_response_tokens")
    config = load_recipe(recipe, overrides={"model.toy": "true"})
    assert config.rollout.max_response_tokens == 96  # the demonstrations must fit, so the cap of 64 does not apply
    assert config.train.lr == 1e-6


def test_the_config_of_a_run_keeps_its_values(tmp_path):
    """Also one that an older version has written, with the defaults of that version."""
    old = yaml.safe_load(dump(toy_config(tmp_path)))
    old["model"]["path"] = "some/model"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(old))
    config = load_run(tmp_path, trust_code=True)
    assert (config.train.lr, config.sft.lr, config.data.template) == (1e-4, 2e-3, "tiny")
    assert check(yaml.safe_load(dump(config))) == config


def test_a_section_that_is_not_a_mapping_is_refused_by_the_schema(tmp_path):
    with pytest.raises(ConfigError, match=r"^train = 3: it should be a mapping"):
        load_recipe(toy_recipe(tmp_path, NAMED), overrides={"train": "3"})


def test_a_default_of_the_critic_stays_when_the_recipe_gives_another_of_its_settings():
    filled = with_own_model_defaults(
        {
            "model": {"path": "a"},
            "rollout": {"max_response_tokens": 9},
            "train": {"critic": {"steps_alone": 3}},
        }
    )
    assert filled["train"] == {"lr": 1e-6, "critic": {"lr": 1e-5, "steps_alone": 3}}
