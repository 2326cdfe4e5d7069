"""The list of stages of a recipe: order, repetitions, what an entry changes, and the sentences of wrong lists."""

from __future__ import annotations

import pytest
from toy_runs import toy_config

from ansatz.config.load import check, dump, parse_yaml
from ansatz.config.stage_list import stage_entries
from ansatz.config.toy import toy_layer
from ansatz.errors import ConfigError
from ansatz.loop.start_checks import check_recipe


def test_without_a_list_the_sections_decide_and_the_recipe_is_the_run_s(tmp_path) -> None:
    config = toy_config(tmp_path)
    entries = stage_entries(config)
    assert [entry.title for entry in entries] == ["problems", "model", "sft", "rl"]
    assert all(entry.config is config for entry in entries)


def test_a_list_decides_the_order_and_may_repeat_a_stage(tmp_path) -> None:
    entries = stage_entries(toy_config(tmp_path, {"stages": ["rl", "sft", "rl", "rl"]}))
    assert [entry.title for entry in entries[2:]] == ["rl", "sft", "rl_2", "rl_3"]
    seeds = [entry.config.seed for entry in entries]
    assert seeds[:4] == [0] * 4  # the first entry of a stage is that of a recipe without a list
    assert len(set(seeds)) == 3  # a repeated stage takes other problems and other noise


def test_an_entry_changes_the_recipe_for_itself_only(tmp_path) -> None:
    changed = {"stage": "rl", "train": {"steps": 7}, "algorithm": {"preset": "rloo"}}
    _, _, first, second, third = stage_entries(toy_config(tmp_path, {"stages": ["rl", changed, "rl"]}))
    assert [entry.config.train.steps for entry in (first, second, third)] == [4, 7, 4]
    assert second.config.algorithm["preset"] == "rloo"
    assert second.config.train.lr == first.config.train.lr
    assert second.config.evaluate == first.config.evaluate


def test_a_dumped_list_is_read_back(tmp_path) -> None:
    config = toy_config(tmp_path, {"stages": ["sft", {"stage": "rl", "train": {"steps": 7}}]})
    assert check(parse_yaml(dump(config), where="a test")) == config


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stages": ["sft", "grpo"]}, "stages, entry 2 = 'grpo': expected one of sft, rejection, "),
        ({"stages": ["model"]}, "stages, entry 1 = 'model': expected one of"),
        ({"stages": [{"train": {"steps": 3}}]}, "stages, entry 1 = {'train': {'steps': 3}}: expected one of"),
        ({"stages": "sft"}, "stages = 'sft': it should be a list, such as [A, B]."),
        (
            {"stages": [{"stage": "rl", "data": {"unfit": "drop"}}]},
            "entry 1 (rl): it changes 'data.unfit'",
        ),
        ({"stages": [{"stage": "rl", "train": {"stepz": 3}}]}, "entry 1 (rl): train.stepz: train has no key 'stepz'."),
        ({"stages": ["rejection"]}, "entry 1 (rejection): the stage has nothing to do. It needs the section"),
        ({"stages": ["rl"], "train": {"steps": 0}}, "entry 1 (rl): the stage has nothing to do. It needs train.steps"),
        ({"stages": ["rl"], "rejection": {}}, "the section 'rejection' has no effect, because stages does not list"),
    ],
    ids=str,
)
def test_a_wrong_list_is_refused_in_a_sentence(tmp_path, changes, sentence) -> None:
    with pytest.raises(ConfigError) as error:
        stage_entries(toy_config(tmp_path, changes))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stage": "rl", "rollout": {"engine": {"name": "nativ"}}}, "'nativ' is unknown"),
        ({"stage": "sft", "train": {"optimizer": {"name": "adamx"}}}, "'adamx' is unknown"),
    ],
)
def test_what_an_entry_names_is_looked_up_before_the_run(tmp_path, changes, sentence) -> None:
    with pytest.raises(ConfigError, match=r"stages, .*: ") as error:
        check_recipe(toy_config(tmp_path, {"stages": ["sft", changes]}))
    assert sentence in str(error.value)


def test_a_toy_run_caps_what_the_entries_change(tmp_path) -> None:
    entries = ["sft", {"stage": "rl", "train": {"steps": 70, "lr": 0.5}}]
    layer = toy_layer(toy_config(tmp_path, {"stages": entries}))
    assert layer["stages"] == ["sft", {"stage": "rl", "train": {"steps": 3, "lr": 0.5}}]
    assert "stages" not in toy_layer(toy_config(tmp_path, {"stages": ["sft", "rl", "rl"]}))
