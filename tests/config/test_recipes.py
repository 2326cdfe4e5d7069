import re

import pytest
import yaml
from toy_runs import REPOSITORY, TOY, toy, toy_config, toy_recipe

from ansatz.config import load_recipe, load_run
from ansatz.config.layers import merge
from ansatz.config.load import check, dump, parse_yaml
from ansatz.config.stage_list import stage_entries
from ansatz.errors import ConfigError


def load(tmp_path, *, overlays=(), **overrides):
    return load_recipe(toy_recipe(tmp_path), overlays=overlays, overrides=overrides)


def refused(tmp_path, **overrides) -> str:
    with pytest.raises(ConfigError) as error:
        load_recipe(toy_recipe(tmp_path), overrides=overrides)
    return str(error.value)


@pytest.mark.parametrize("recipe", sorted((REPOSITORY / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_of_the_project_loads_and_is_named_as_its_file(recipe):
    config = load_recipe(recipe)
    assert config.name == recipe.stem
    assert check(yaml.safe_load(dump(config))) == config


def test_the_resolved_config_written_down_loads_as_the_same(tmp_path):
    config = toy_config(tmp_path, {"train": {"lr": 1e-6, "max_logprob_gap": 1e9}})
    (tmp_path / "config.yaml").write_text(dump(config))
    assert load_run(tmp_path, trust_code=True) == config
    assert load_recipe(tmp_path / "config.yaml") == config


@pytest.mark.parametrize("text", ["1e-6", "1E-6", "1.0e-6", "+1e-6", "0.000001"])
def test_scientific_notation_is_a_number_in_recipe_and_override(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"name: x\ndata: {{train: {{}}, heldout: {{}}}}\ntrain: {{lr: {text}}}\n")
    assert load_recipe(path).train.lr == 1e-6
    assert load(tmp_path, **{"train.lr": text}).train.lr == 1e-6


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e3", 1000.0), ("-2.5e-3", -0.0025), (".5", 0.5), ("7", 7), ("1_000", 1000), (".inf", float("inf"))],
)
def test_numbers_are_read_as_people_write_them(text, value):
    assert parse_yaml(text, where="x") == value
    assert type(parse_yaml(text, where="x")) is type(value)


@pytest.mark.parametrize("text", ["1e-6m", "e5", "1.2.3", "v1", "+"])
def test_what_only_begins_like_a_number_is_text(text):
    assert parse_yaml(text, where="x") == text


def test_a_mapping_that_another_one_merges_can_merge_one_itself():
    """The deeper one is made after the mapping that merges it, and has every key of its own by then."""
    text = "a: &a {x: 1}\nouter:\n  inner: &b {<<: *a, x: 2}\nc: {<<: *b}\n"
    assert parse_yaml(text, where="x") == {"a": {"x": 1}, "outer": {"inner": {"x": 2}}, "c": {"x": 2}}


def test_a_key_written_twice_is_refused_with_its_line():
    with pytest.raises(
        ConfigError, match=r"^r.yaml: duplicate key 'lr' \(second occurrence on line 3\)\. Remove one of them\.$"
    ):
        parse_yaml("train:\n  lr: 1\n  lr: 2\n", where="r.yaml")
    with pytest.raises(ConfigError, match="duplicate key 'seed'"):
        parse_yaml("seed: 1\nname: x\nseed: 1\n", where="r.yaml")


def test_a_mapping_may_be_merged_from_an_anchor():
    assert parse_yaml("a: &base {x: 1, y: 2}\nb: {<<: *base, y: 3}\n", where="r")["b"] == {"x": 1, "y": 3}


@pytest.mark.parametrize("text", ["train: [1", "a: b: c", "{[1]: 2}", "\tx: 1", "x: !!python/object:os.system 1"])
def test_broken_yaml_is_one_sentence(text):
    with pytest.raises(ConfigError, match=r"^r\.yaml is not valid YAML: .*\.$"):
        parse_yaml(text, where="r.yaml")


@pytest.mark.parametrize("content", ["", "- 1\n- 2\n", "just text\n"])
def test_a_recipe_must_be_a_mapping(tmp_path, content):
    (tmp_path / "r.yaml").write_text(content)
    with pytest.raises(ConfigError, match=r"expected a mapping of sections such as `train:`\.$"):
        load_recipe(tmp_path / "r.yaml")


def test_a_recipe_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "r.yaml").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ConfigError, match=r"r\.yaml is not a text file"):
        load_recipe(tmp_path / "r.yaml")


def test_a_missing_recipe_is_named_with_the_nearest_one(tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(ConfigError, match=r"there is no recipe file 'tiny_arithmetic_grpo.yaml' \(looked in .*Did you"):
        load_recipe("tiny_arithmetic_grpo.yaml")
    with pytest.raises(ConfigError, match="is a folder, expected a file"):
        load_recipe(tmp_path)


def test_later_layers_win_recipe_then_overlays_in_order_then_overrides(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("train: {lr: 0.1, steps: 1, warmup_steps: 1}\n")
    second.write_text("train: {lr: 0.2, steps: 2}\n")
    config = load(tmp_path, overlays=[first, second], **{"train.lr": "0.3"})
    assert (config.train.lr, config.train.steps, config.train.warmup_steps) == (0.3, 2, 1)
    assert config.rollout.prompts_per_step == TOY["rollout"]["prompts_per_step"]
    assert load(tmp_path, overlays=[second, first]).train.lr == 0.1


def test_a_renamed_component_drops_the_settings_of_the_old_one(tmp_path):
    overlay = tmp_path / "over.yaml"
    overlay.write_text("data: {train: {source: jsonl, path: p.jsonl, split: train}}\n")
    assert load(tmp_path, overlays=[overlay]).data.train == {"source": "jsonl", "path": "p.jsonl", "split": "train"}
    overlay.write_text("data: {train: {source: word_problems, count: 7}}\n")
    assert load(tmp_path, overlays=[overlay]).data.train == {**TOY["data"]["train"], "count": 7}
    merged = merge({"surrogate": {"name": "clip", "high": 0.3}}, {"surrogate": {"name": "cispo"}})
    assert merged == {"surrogate": {"name": "cispo"}}


def test_held_out_sets_replace_a_source_and_a_source_replaces_held_out_sets(tmp_path):
    sets = {"easy": {"source": "arithmetic", "count": 9}, "hard": {"source": "jsonl", "path": "hard.jsonl"}}
    overlay = tmp_path / "over.yaml"
    overlay.write_text(yaml.safe_dump({"data": {"heldout": sets}}))
    parts = [{"split": "heldout", **each, "name": name} for name, each in sets.items()]
    assert load(tmp_path, overlays=[overlay]).data.heldout["parts"] == parts
    few = {"data.heldout.easy.count": "3"}  # of the set, not of a source
    assert load(tmp_path, overlays=[overlay], **few).data.heldout["parts"][0]["count"] == 3
    one = load(tmp_path, overlays=[overlay], **{"data.heldout": "arithmetic", "data.heldout.count": "5"})
    assert one.data.heldout == {"source": "arithmetic", "count": 5}
    toy_size = load(tmp_path, overlays=[overlay], **{"model.toy": "true"})  # hard.jsonl is missing
    assert (toy_size.data.heldout["source"], "easy" in toy_size.data.heldout) == ("word_problems", False)
    mixed = {"data.train": "{source: mine.py:mix, a: {source: jsonl, path: a.jsonl}, split: train}"}
    changed = load(tmp_path, **mixed, **{"data.train.a.path": "b.jsonl"}).data.train  # a source with a source in it
    assert changed == {"source": "mine.py:mix", "a": {"source": "jsonl", "path": "b.jsonl"}, "split": "train"}
    inner = {"data.heldout": "fusion", "data.heldout.of": "{source: arithmetic}", "data.heldout.of.count": "5"}
    for words in (inner, dict(reversed(inner.items()))):
        assert load(tmp_path, **words).data.heldout["of"]["source"] == "arithmetic"


def test_the_order_of_overrides_does_not_matter(tmp_path):
    overrides = {"data.train.path": "p.jsonl", "data.train.source": "jsonl", "data.train.split": "train"}
    expected = {"source": "jsonl", "path": "p.jsonl", "split": "train"}
    assert load(tmp_path, **overrides).data.train == expected
    assert load(tmp_path, **dict(reversed(overrides.items()))).data.train == expected


def test_an_override_may_be_a_whole_mapping_or_null(tmp_path):
    config = load(tmp_path, **{"rewards": "{format: {weight: 0.1}}", "data.sft": "null", "model.path": "some/dir"})
    assert config.rewards["format"] == {"weight": 0.1}
    assert config.data.sft is None
    assert config.stage_names == ("problems", "model", "rl")
    assert config.model.path == "some/dir"


def test_an_option_for_a_boolean_or_a_text_is_read_as_either(tmp_path):
    for text, value in (("false", False), ("true", True), ("hard", "hard")):
        assert load(tmp_path, **{"save.best": text}).save.best == value


def test_merging_changes_neither_side():
    base, over = {"a": {"b": 1}}, {"a": {"c": 2}}
    assert merge(base, over) == {"a": {"b": 1, "c": 2}}
    assert (base, over) == ({"a": {"b": 1}}, {"a": {"c": 2}})


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("trian.lr", "1", "trian: a recipe has no key 'trian'. Did you mean 'train'?"),
        ("train.lrr", "1", "train.lrr: train has no key 'lrr'. Did you mean 'lr'?"),
        ("rollout.samples_per_promt", "1", "Did you mean 'samples_per_prompt'?"),
        ("data.heldot", "{}", "data.heldot: data has no key 'heldot'. Did you mean 'heldout'?"),
        ("train", "3", "train = 3: it should be a mapping of keys to values."),
        (
            "evaluate.template",
            "{name: tiny, shots: a.jsonl, num_shot: 2}",
            "evaluate.template.num_shot: evaluate.template has no key 'num_shot'. Did you mean 'num_shots'?",
        ),
        (
            "data.template",
            "{name: chat, sistem: Be brief.}",
            "data.template.sistem: data.template has no key 'sistem'. Did you mean 'system'?",
        ),
        ("data.template", "{name: tiny, num_shots: 0}", "data.template.num_shots = 0: it should be greater than"),
        ("data.template", "{shots: a.jsonl}", "data.template.name is missing."),
        ("data.template", "[tiny]", "data.template = ['tiny']: it should be a valid string."),
        ("train", "null", "train = None: it should be a mapping of keys to values."),
        ("train.lr", "fast", "train.lr = 'fast': it should be a valid number"),
        ("train.lr", "-1", "train.lr = -1: it should be greater than or equal to 0."),
        ("train.lr", ".inf", "train.lr = inf: it should be a finite number."),
        ("train.lr", ".nan", "train.lr = nan: it should be a finite number."),
        ("train.steps", "1.5", "train.steps = 1.5: it should be a valid integer"),
        ("train.steps", "true", "train.steps = True: it should be a number."),
        ("train.optimizer", "[adamw]", "train.optimizer = ['adamw']: it should be a mapping of keys to values."),
        ("train.max_logprob_gap", "0.9", "train.max_logprob_gap = 0.9: it should be greater than or equal to 1."),
        ("sft.batch_size", "0", "sft.batch_size = 0: it should be greater than 0."),
        ("model.dtype", "fp16", "model.dtype = 'fp16': it should be 'auto', 'float32', 'bfloat16' or 'portable'."),
        ("model.path", "[7]", "model.path = [7]: it should be a valid string."),
        ("data.sft", "3", "data.sft = 3: it should be a mapping of keys to values."),
        (
            "rollout.temperature",
            "0",
            "rollout.temperature = 0 makes every response identical, so there is nothing to learn from",
        ),
        ("rollout.top_p", "0", "rollout.top_p = 0: it should be greater than 0."),
        (
            "rollout.min_response_tokens",
            "999",
            "rollout.min_response_tokens = 999: no response could end within max",
        ),
        (
            "rollout.thinking_budget",
            "999",
            "rollout.thinking_budget = 999: it leaves no room for an answer within max",
        ),
        ("rollout.stop", "[x, '']", "rollout.stop.1 = '': it should have at least 1 character"),
        ("rollout.min_p", "1.5", "rollout.min_p = 1.5: it should be less than or equal to 1."),
        (
            "evaluate.k",
            "9",
            "evaluate.k = 9: pass@k needs at least that many samples, got",
        ),
        ("evaluate.temperature", ".inf", "evaluate.temperature = inf: it should be a finite number."),
        ("save.keep", "0", "save.keep = 0: it should be greater than 0."),
        ("save.samples", "some", "save.samples = 'some': it should be a valid boolean"),
        ("seed", "-1", "seed = -1: it should be greater than or equal to 0."),
        ("name", "..", "name = '..': it should match pattern"),
        ("name", "a/b", "name = 'a/b': it should match pattern"),
        ("algorithm", "[grpo]", "algorithm = ['grpo']: it should be a mapping of keys to values."),
        ("rewards.math_answer", "1", "rewards.math_answer = 1: it should be a mapping of keys to values."),
        ("train.lr", "[1", "the value of --train.lr is not valid YAML: "),
    ],
)
def test_a_wrong_value_is_one_sentence_in_the_words_of_the_recipe(tmp_path, key, value, sentence):
    message = refused(tmp_path, **{key: value})
    assert sentence in message
    assert message.count("\n") == 0
    assert not re.search(r"pydantic|Section|validation error|https?:", message)


def test_a_key_of_an_earlier_version_is_told_with_what_to_do_instead(tmp_path):
    message = refused(tmp_path, **{"rollout.publish_every": "4"})
    assert message.startswith("rollout.publish_every = 4: this key is gone. ")
    assert "rollout.lag" in message


def test_several_wrong_values_are_told_at_once(tmp_path):
    message = refused(tmp_path, **{"train.lr": "-1", "sft.lr": "-1"})
    assert "train.lr = -1" in message
    assert "sft.lr = -1" in message


def test_what_has_no_default_must_be_given():
    with pytest.raises(
        ConfigError, match=r"data\.heldout is missing\. It has no default, so the recipe must give it\."
    ):
        check({"name": "x", "data": {"train": {}}})


def test_a_folder_without_a_config_is_no_run(tmp_path):
    with pytest.raises(ConfigError, match=r"is not a run folder: config\.yaml is missing\."):
        load_run(tmp_path)


def test_the_toy_recipe_of_the_tests_is_unchanged_by_its_changes(tmp_path):
    toy(tmp_path, {"train": {"steps": 9}, "data": {"train": {"count": 1}}})
    assert TOY["train"] == {"steps": 4}
    assert TOY["data"]["train"]["count"] == 100


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1: a", "the mapping on line 1 has the key '1', which YAML does not read as text"),
        ("train: {2020-01-01: 1}", "has the key '2020-01-01', which YAML does not read as text"),
        ("algorithm: {preset: 2020-01-01}", "it has '2020-01-01', which YAML reads as a date"),
        ("name: !!set {a}", "which YAML reads as a set"),
        ("name: !!bool x", "a value does not have the form of its tag"),
        ("seed: 0x" + "f" * 5000, "an integer of more than 300 digits"),
    ],
)
def test_yaml_that_no_recipe_can_hold_is_one_sentence(tmp_path, text, sentence):
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        load_recipe(tmp_path / "r.yaml")


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_null_removes_a_reward_from_an_option_and_from_an_overlay(tmp_path):
    recipe = toy_recipe(tmp_path, {"rewards": {"math_answer": {"mode": "strict"}, "format": {"weight": 0.1}}})
    overlay = write(tmp_path / "over.yaml", "rewards: {format: null, repetition: {}}\n")
    expected = {"math_answer": {"mode": "strict"}}
    for overrides in ({"rewards": "{format: null}"}, {"rewards.format": "null"}):
        assert load_recipe(recipe, overrides=overrides).rewards == expected
        toy_size = load_recipe(recipe, overrides={**overrides, "model.toy": "true"})
        assert toy_size.rewards == expected
    assert load_recipe(recipe, overlays=[overlay]).rewards == {**expected, "repetition": {}}


def test_the_default_reward_can_be_removed_too(tmp_path):
    recipe = toy_recipe(tmp_path, without="rewards")
    changed = load_recipe(recipe, overrides={"rewards": "{math_answer: null, format: {}}"})
    assert changed.rewards == {"format": {}}


def test_a_reward_that_is_not_there_cannot_be_removed_and_a_recipe_of_its_own_cannot_say_null(tmp_path):
    assert refused(tmp_path, **{"rewards.brief": "null"}) == (
        "rewards.brief = null removes a reward, but the recipe has no 'brief'; its rewards are 'math_answer'."
    )
    recipe = toy_recipe(tmp_path, {"rewards": {"math_answer": None}})
    with pytest.raises(ConfigError, match=r"rewards\.math_answer = None: it should be a mapping"):
        load_recipe(recipe)


def test_a_removed_reward_stays_removed_when_the_run_is_resumed_with_the_option(tmp_path):
    config = toy_config(tmp_path, {"rewards": {"math_answer": {}, "format": {}}})
    (tmp_path / "config.yaml").write_text(dump(config))
    assert load_run(tmp_path, overrides={"rewards.format": "null"}).rewards == {"math_answer": {}}


@pytest.mark.parametrize(
    ("overlay", "overrides", "sentences"),
    [
        (
            "rewards: {format: {}}",
            {},
            ["rewards keeps {math_answer: {mode: strict}} of the recipe. rewards: {math_answer: null} removes one."],
        ),
        ("", {"rewards": "{math_answer: {weight: 2}}"}, ["rewards.math_answer keeps {mode: strict} of the recipe."]),
        ("", {"rewards.math_answer.weight": "2"}, []),  # an option for one key names what it changes
        ("train: {lr: 1e-3}", {}, []),  # a section, not a component
        ("rollout: {engine: {name: vllm}}", {}, []),  # another component drops the settings of the old one
        ("rollout: {engine: {name: native}}", {}, ["rollout.engine keeps {max_concurrent: 8} of the recipe."]),
    ],
)
def test_what_a_merge_keeps_of_a_component_is_told(tmp_path, overlay, overrides, sentences):
    changes = {
        "rewards": {"math_answer": {"mode": "strict"}},
        "rollout": {"engine": {"name": "native", "max_concurrent": 8}},
    }
    notes: list[str] = []
    overlays = [write(tmp_path / "over.yaml", overlay)] if overlay else []
    load_recipe(toy_recipe(tmp_path, changes), overlays=overlays, overrides=overrides, note=notes.append)
    assert notes == sentences


def test_the_defaults_of_a_project_take_the_place_of_a_preset_in_the_layer_below(tmp_path):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("algorithm: {defaults_of: verl}\n")
    below = {**TOY.get("algorithm", {}), "preset": "grpo", "kl_coef": 0.1}
    recipe = toy_recipe(tmp_path, {"algorithm": below})
    for config in (
        load_recipe(recipe, overlays=[overlay]),
        load_recipe(recipe, overrides={"algorithm.defaults_of": "verl"}),
        load_recipe(recipe, overrides={"algorithm": "{defaults_of: verl}"}),
    ):
        assert config.algorithm == {**below, "preset": None, "defaults_of": "verl"}


@pytest.mark.parametrize("names", [("preset", "defaults_of"), ("defaults_of", "preset")])
def test_a_preset_and_a_project_in_one_layer_are_both_meant_whatever_their_order(tmp_path, names):
    values = {"preset": "gspo", "defaults_of": "verl"}
    assert load(tmp_path, **{f"algorithm.{name}": values[name] for name in names}).algorithm == values
    assert load_recipe(toy_recipe(tmp_path, {"algorithm": values})).algorithm == values


def test_a_merge_does_not_say_that_it_keeps_a_preset_that_it_drops(tmp_path):
    notes: list[str] = []
    recipe = toy_recipe(tmp_path, {"algorithm": {"preset": "grpo", "kl_coef": 0.1}})
    load_recipe(recipe, overrides={"algorithm": "{defaults_of: verl}"}, note=notes.append)
    assert notes == ["algorithm keeps {kl_coef: 0.1} of the recipe."]


def test_an_entry_of_stages_takes_the_defaults_of_a_project_instead_of_the_preset(tmp_path):
    entry = {"stage": "rl", "algorithm": {"defaults_of": "verl"}}
    config = toy_config(tmp_path, {"algorithm": {"preset": "grpo"}, "stages": ["sft", "rl", entry]})
    assert [each.config.algorithm["preset"] for each in stage_entries(config)[-2:]] == ["grpo", None]


def test_of_thousands_of_wrong_keys_ten_are_named_and_the_others_counted():
    with pytest.raises(ConfigError, match=r"990 more keys are wrong\.$") as error:
        check(merge(TOY, {f"other_{number}": 1 for number in range(1000)}))
    assert str(error.value).count("a recipe has no key") == 10


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("rollout.engine", "VLLM", {"name": "vllm"}),
        ("train.optimizer", "Muon-Mix", {"name": "muon_mix"}),
        ("algorithm", "Dr-GRPO", {"preset": "dr_grpo"}),
        ("algorithm", "{defaults_of: TRL}", {"defaults_of": "trl"}),
        ("environment", "Calculator", {"name": "calculator"}),
        ("data.train", "Arithmetic", {"source": "arithmetic"}),
        ("data.train", "My/Rows.jsonl", {"source": "jsonl", "path": "My/Rows.jsonl"}),
        ("data.curriculum", "uniform", {"sampler": "uniform"}),
        ("rewards", "Format", {"format": {}}),
        ("rewards", "[My_File.py:Brief]", {"My_File.py:Brief": {}}),
        ("stages", "RL", ("rl",)),
        ("stages", "sft, RL", ("sft", "rl")),
        ("stages", "[{stage: RL, algorithm: RLOO}]", ({"stage": "rl", "algorithm": {"preset": "rloo"}},)),
    ],
)
def test_a_plain_name_stands_for_the_mapping_with_it_in_a_recipe_and_as_an_option(tmp_path, key, text, value):
    def at(config):
        for part in key.split("."):
            config = getattr(config, part)
        return config

    assert at(load(tmp_path, **{key: text})) == value
    *parents, last = key.split(".")
    layer = {last: yaml.safe_load(text)}
    for part in reversed(parents):
        layer = {part: layer}
    (tmp_path / "over.yaml").write_text(yaml.safe_dump(layer))
    assert at(load(tmp_path, overlays=[tmp_path / "over.yaml"])) == value


def test_settings_besides_a_plain_name_are_kept_in_either_order(tmp_path):
    for words in ({"algorithm": "GSPO", "algorithm.kl_coef": "0.1"}, {"algorithm.kl_coef": "0.1", "algorithm": "GSPO"}):
        assert load(tmp_path, **words).algorithm == {"preset": "gspo", "kl_coef": 0.1}
    assert load(tmp_path, model="Some/Folder", **{"rollout.max_response_tokens": "9"}).model.path == "Some/Folder"


def test_a_number_is_no_plain_name(tmp_path):
    assert "train = 100: it should be a mapping" in refused(tmp_path, train="100")
    assert "rewards = [1]: it should be a mapping" in refused(tmp_path, rewards="[1]")


def test_a_folder_stands_for_the_recipe_in_it(tmp_path):
    (tmp_path / "project").mkdir()
    toy_recipe(tmp_path / "project").rename(tmp_path / "project" / "recipe.yaml")
    assert load_recipe(tmp_path / "project") == load_recipe(tmp_path / "project" / "recipe.yaml")
