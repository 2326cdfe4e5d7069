import json

import pytest
import yaml
from toy_runs import TOY, toy_recipe

from ansatz.config import load_recipe, load_run
from ansatz.config.load import dump
from ansatz.config.stage_list import stage_entries
from ansatz.config.toy import CAPS
from ansatz.errors import ConfigError
from ansatz.loop.stages.preference import PreferenceStage

BIG = {
    "data": {
        "sft": None,
        "train": {"source": "hub", "dataset": "some/where", "split": "train", "config": "main"},
        "heldout": {"source": "jsonl", "path": "nowhere.jsonl", "split": "heldout"},
    },
    "model": {"path": "Qwen/Qwen2.5-3B", "tiny": {}},
    "rollout": {"prompts_per_step": 512, "samples_per_prompt": 2, "max_response_tokens": 20480},
    "train": {"steps": 500, "updates_per_step": 16, "warmup_steps": 0},
    "rewards": {
        "math_answer": {"correct": 5.0},
        "overlong": {"max_tokens": 20480, "buffer": 4096},
        "kimi_length": {"from_step": 200},
    },
}


def at_toy_size(tmp_path, changes=None, **overrides):
    recipe = toy_recipe(tmp_path, BIG if changes is None else changes)
    return load_recipe(recipe, overrides={"model.toy": "true", **overrides})


def test_work_is_capped_and_never_raised(tmp_path):
    config = at_toy_size(tmp_path)
    assert config.name == "toy_toy"
    assert config.rollout.prompts_per_step == CAPS["rollout"]["prompts_per_step"]
    assert config.rollout.samples_per_prompt == 2
    assert config.rollout.max_response_tokens == CAPS["rollout"]["max_response_tokens"]
    assert (config.train.steps, config.train.updates_per_step, config.train.warmup_steps) == (3, 4, 0)
    assert config.train.lr == load_recipe(toy_recipe(tmp_path, BIG)).train.lr


def test_rounds_of_rejection_sampling_are_capped_like_sampling_and_fine_tuning(tmp_path):
    sft = {"steps": 660, "batch_size": 64, "lr": 4e-3, "decay_steps": 260, "warmup_steps": 0}
    rejection = {"rounds": 9, "samples_per_prompt": 16, "per_prompt": 8, "max_response_tokens": 900, "sft": sft}
    assert given(at_toy_size(tmp_path, {"rejection": rejection}).rejection) == {
        "rounds": 2,
        "samples_per_prompt": 4,
        "per_prompt": 8,
        "max_response_tokens": 64,
        "sft": {"steps": 3, "batch_size": 8, "lr": 4e-3, "decay_steps": 1, "warmup_steps": 0},
    }
    small = {"rounds": 1, "samples_per_prompt": 2, "sft": {"steps": 1}}
    assert given(at_toy_size(tmp_path, {"rejection": small}).rejection) == small


def given(section):
    return section.model_dump(exclude_unset=True)


def test_fine_tuning_by_epochs_makes_a_few_steps(tmp_path):
    """Without them, the recipe would have no stage of SFT."""
    epochs = {"steps": 0, "epochs": 2}
    changes = {
        "sft": epochs,
        "rejection": {"sft": epochs},
        "stages": ["sft", "rejection", {"stage": "sft", "sft": epochs}],
    }
    config = load_recipe(toy_recipe(tmp_path, changes), overrides={"model.toy": "true"})
    assert config.sft.steps == config.rejection.sft["steps"] == config.stages[2]["sft"]["steps"] == 3
    assert config.sft.epochs == config.rejection.sft["epochs"] == config.stages[2]["sft"]["epochs"] == 0
    assert [entry.title for entry in stage_entries(config)][2:] == ["sft", "rejection", "sft_2"]


def test_rewards_of_length_and_step_keep_their_proportion(tmp_path):
    rewards = at_toy_size(tmp_path).rewards
    assert rewards["overlong"] == {"max_tokens": 64, "buffer": 12}  # 4096 of 20480 is a fifth
    assert rewards["kimi_length"] == {"from_step": 3}
    assert rewards["math_answer"] == {"correct": 5.0}


def test_the_ramp_of_a_length_reward_ends_with_the_toy(tmp_path):
    def of(**settings):
        changes = {**BIG, "rewards": {"math_answer": {}, "kimi_length": settings}}
        return at_toy_size(tmp_path, changes).rewards["kimi_length"]

    assert of(from_step=1, ramp_steps=50) == {"from_step": 1, "ramp_steps": 2}
    assert of(from_step=200, ramp_steps=50) == {"from_step": 3, "ramp_steps": 0}
    assert of(from_step=1, ramp_steps=2) == {"from_step": 1, "ramp_steps": 2}


def test_an_override_wins_over_what_toy_size_caps(tmp_path):
    config = at_toy_size(tmp_path, **{"train.steps": "9", "name": "mine"})
    assert (config.train.steps, config.name) == (9, "mine")
    assert "train.steps" not in " ".join(config.model.toy)


def test_problems_that_are_not_there_give_way_to_generated_ones(tmp_path):
    config = at_toy_size(tmp_path)
    assert config.data.sft is None
    for section, split in ((config.data.train, "train"), (config.data.heldout, "heldout")):
        assert (section["source"], section["split"], section["count"]) == ("word_problems", split, 64)
        assert not {"dataset", "path", "config"} & set(section)


def test_countdown_rewards_get_countdown_puzzles(tmp_path):
    config = at_toy_size(tmp_path, {**BIG, "rewards": {"countdown": {}}})
    assert config.data.train["source"] == "countdown"


def test_files_that_are_there_stay_and_a_part_that_is_not_replaces_the_mixture(tmp_path):
    there = tmp_path / "rows.jsonl"
    there.write_text(json.dumps({"question": "1 + 1?", "answer": "2"}))
    own = {"source": "jsonl", "path": str(there), "split": "train"}
    mixed = {"source": "mixture", "split": "heldout", "parts": [own, {"source": "hub", "dataset": "some/where"}]}
    config = at_toy_size(tmp_path, {**BIG, "data": {"sft": None, "train": own, "heldout": mixed}})
    assert config.data.train == own
    assert config.data.unfit == "drop"  # with a toy's tokenizer, a row can be longer than the recipe allows
    assert at_toy_size(tmp_path).data.unfit == "error"
    assert config.data.heldout["source"] == "word_problems"
    assert "parts" not in config.data.heldout


def test_demonstrations_of_the_recipes_own_keep_their_room(tmp_path):
    long = {"rollout": {"max_response_tokens": 400}}
    assert at_toy_size(tmp_path, long).rollout.max_response_tokens == 400
    gone = {**long, "data": {"sft": {"source": "jsonl", "path": "nowhere.jsonl", "split": "train"}}}
    assert at_toy_size(tmp_path, gone).rollout.max_response_tokens == CAPS["rollout"]["max_response_tokens"]


def test_every_change_is_kept_in_the_config_and_only_changes(tmp_path):
    config = at_toy_size(tmp_path)
    lines = config.model.toy
    assert "rollout.prompts_per_step: 512 -> 4" in lines
    assert "data.train.dataset: some/where -> (left out)" in lines
    assert "data.heldout.count: (left out) -> 64" in lines
    changed = {line.partition(":")[0] for line in lines}
    assert not changed & {"rollout.samples_per_prompt", "train.lr", "model.path", "model.toy", "seed"}


def test_a_written_config_is_not_made_a_toy_again(tmp_path):
    config = at_toy_size(tmp_path, **{"train.steps": "9"})
    (tmp_path / "config.yaml").write_text(dump(config))
    assert load_recipe(tmp_path / "config.yaml") == config
    assert load_run(tmp_path, trust_code=True) == config


def test_a_key_of_an_earlier_version_that_says_what_every_run_does_now_has_no_effect(tmp_path):
    config = at_toy_size(tmp_path, **{"train.steps": "9"})
    written = yaml.safe_load(dump(config))
    written["rollout"] |= {"publish_every": 1, "long_lag": False}
    written["save"] |= {"exact": True}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(written))
    assert load_run(tmp_path, trust_code=True) == load_recipe(tmp_path / "config.yaml") == config


@pytest.mark.parametrize(("key", "value"), [("publish_every", 2), ("long_lag", True)])
def test_a_run_of_an_earlier_version_that_did_something_else_is_told_so(tmp_path, key, value):
    written = yaml.safe_load(dump(at_toy_size(tmp_path, **{"train.steps": "9"})))
    written["rollout"][key] = value
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(written))
    with pytest.raises(ConfigError, match=rf"rollout\.{key} = {value}: this key is gone"):
        load_run(tmp_path, trust_code=True)


def test_a_run_that_an_earlier_version_began_loads_without_the_limits_that_follow_from_others(tmp_path):
    config = at_toy_size(tmp_path, **{"train.steps": "9"})
    written = yaml.safe_load(dump(config))
    written["cluster"] |= {"probe": 10.0, "patience": 500.0, "update": 500.0}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(written))
    assert load_run(tmp_path, trust_code=True) == config
    with pytest.raises(ConfigError, match=r"cluster\.patience"):
        load_recipe(tmp_path / "config.yaml")


@pytest.mark.parametrize("value", ["false", None])
def test_without_it_nothing_changes(tmp_path, value):
    recipe = toy_recipe(tmp_path, BIG)
    config = load_recipe(recipe, overrides={"model.toy": value} if value else {})
    assert config.model.toy is False
    assert config.train.steps == 500
    assert config == load_recipe(recipe)


def test_a_model_built_from_nothing_gets_toy_sizes_and_keeps_its_other_settings(tmp_path):
    tiny = {"hidden_size": 512, "num_layers": 12, "max_context": 777}
    config = at_toy_size(tmp_path, {"model": {"tiny": tiny}})
    assert (config.model.tiny["hidden_size"], config.model.tiny["num_layers"]) == (64, 2)
    assert config.model.tiny["max_context"] == 777
    assert yaml.safe_load(dump(config))["model"]["path"] is TOY["model"]["path"]


def test_given_pairs_and_labels_of_the_hub_are_replaced_by_responses_of_the_policy(tmp_path):
    hub = {"source": "hub", "dataset": "some/where", "split": "test"}
    reward_model = {"kind": "process", "data": hub, "heldout_data": hub, "step_end": {"marker": "<s>"}}
    recipe = {"reward_model": reward_model, "preference": {"pairs": {**hub, "min_gap": 1.0}}}
    config = at_toy_size(tmp_path, recipe)
    assert (config.reward_model.data, config.reward_model.heldout_data) == (None, None)
    assert config.reward_model.step_end == "line"
    PreferenceStage().check(config)
    assert config.preference.pairs["source"] == "policy"
    (tmp_path / "pairs.jsonl").write_text("")
    there = {"source": "file", "path": str(tmp_path / "pairs.jsonl")}
    recipe = {"reward_model": {"data": there}, "preference": {"pairs": there}}
    config = at_toy_size(tmp_path, {**recipe, "stages": [{"stage": "reward_model", "reward_model": {"data": hub}}]})
    assert config.reward_model.data == config.preference.pairs == there
    assert config.stages[0]["reward_model"]["data"] is None
