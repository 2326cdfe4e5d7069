from __future__ import annotations

import json
import threading

import pytest
from pydantic import BaseModel
from safetensors.torch import load_file
from toy_runs import toy_config

from ansatz.config.schema import Config, flat_keys
from ansatz.errors import CheckpointError, ConfigError
from ansatz.locks import folder_lock
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config
from ansatz.loop.run_record import MAY_CHANGE, RunRecord, read_record, record_of, resumed_record

SHORT = {"sft": {"steps": 1}, "train": {"steps": 2}, "save": {"every": 1}, "evaluate": {"every": 0}}


SECRET = "ff8e51b2-a-variable-of-the-environment"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_TOKEN", SECRET)
        return run_pipeline(toy_config(tmp_path_factory.mktemp("run"), SHORT))


def test_no_variable_of_the_environment_is_in_the_run_folder(run):
    files = [file for file in run.rglob("*") if file.is_file()]
    assert len(files) > 10
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []


def other(value):
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return [*value, "other"] if isinstance(value, list) else "other"


def refusal(record, config):
    try:
        resumed_record(record, config, allow_changes=False)
    except ConfigError as error:
        return str(error)
    return None


def test_every_changed_key_is_refused_by_name_or_allowed(tmp_path):
    config = toy_config(tmp_path)
    recipe = json.loads(json.dumps(record_of(config).recipe))
    refusals = {key: refusal(RunRecord(recipe={**recipe, key: other(value)}), config) for key, value in recipe.items()}
    allowed = {key for key, message in refusals.items() if message is None}
    assert allowed == {"name", "out", "train.steps", *(key for key in recipe if key.startswith(("save.", "cluster.")))}
    assert all(f"{key} was " in message for key, message in refusals.items() if message is not None)
    assert {"train.lr", "seed", "threads", "model.dtype"} <= refusals.keys() - allowed
    assert len(refusals) > 50


COMPONENTS = {
    "model": {"lora": {"rank": 4, "alpha": 8.0}},
    "data": {"curriculum": {"sampler": "variance", "dynamic_sampling": 2}},
    "rejection": {"rounds": 2, "sft": {"steps": 3}},
    "algorithm": {"preset": "grpo", "kl_coef": 0.1, "surrogate": {"name": "clip", "low": 0.1, "high": 0.2}},
    "train": {"optimizer": {"name": "adamw", "betas": [0.9, 0.95]}},
    "rewards": {"math_answer": {"weight": 0.5, "mode": "strict"}},
    "rollout": {"engine": {"name": "native", "max_concurrent": 8}, "stop": ["x"]},
}


def leaves(section, prefix=""):
    """The dotted names of the keys of the schema that are not sections themselves."""
    for name, info in section.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from leaves(info.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_key_of_the_schema_and_every_setting_of_a_component_is_part_of_the_record(tmp_path):
    config = toy_config(tmp_path, COMPONENTS)
    recipe = json.loads(json.dumps(record_of(config).recipe))
    for key in leaves(Config):
        assert any(name == key or name.startswith(f"{key}.") for name in recipe), key
    assert set(flat_keys(COMPONENTS)) <= recipe.keys()
    given = flat_keys(config.model_dump(mode="json", exclude_unset=True))
    for key in recipe:
        changed = RunRecord(recipe={**recipe, key: other(recipe[key])})
        removed = RunRecord(recipe={name: value for name, value in recipe.items() if name != key})
        for record in (changed, removed):
            message = refusal(record, config)
            may = key in ("name", "out", "train.steps") or key.startswith(("save.", "cluster."))
            may |= record is removed and key not in given
            assert may if message is None else f"{key} was " in message


def test_an_accepted_change_is_recorded_with_both_values(run):
    config = resume_config(run, {"train.lr": "0.5"})
    with pytest.raises(ConfigError, match=r"train\.lr was .*, now 0\.5\. Restore"):
        resumed_record(read_record(run), config, allow_changes=False)
    (change,) = resumed_record(read_record(run), config, allow_changes=True).changes
    assert set(change["changed"]) == {"train.lr"}
    assert change["changed"]["train.lr"][1] == "0.5"


def test_a_config_edited_by_hand_is_refused_before_anything_is_written(run):
    file = run / "config.yaml"
    text = file.read_text()
    file.write_text(text.replace("seed: 0", "seed: 1"))
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(ConfigError, match="seed was 0, now 1"):
        run_pipeline(resume_config(run), resume=True)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    file.write_text(text)


def test_save_best_must_name_a_source_of_the_stored_problems_when_a_run_is_resumed(run):
    with pytest.raises(ConfigError, match=r"save\.best = 'hard': expected true, false or one of several sources"):
        run_pipeline(resume_config(run, {"save.best": "hard"}), resume=True)


@pytest.mark.parametrize("key", ["name", "out"])
def test_another_folder_is_refused_when_a_run_is_resumed(run, key):
    with pytest.raises(ConfigError, match=rf"--{key} with --resume: a run is resumed in its own folder, .*{run.name}"):
        resume_config(run, {"train.steps": "4", key: "other"})


def test_a_finished_run_that_is_extended_ends_as_one_that_was_started_longer(run, tmp_path):
    whole = run_pipeline(toy_config(tmp_path, {**SHORT, "train": {"steps": 4}}))
    assert run_pipeline(resume_config(run, {"train.steps": "4"}), resume=True) == run
    left, right = (load_file(path / "rl/checkpoints/step-000004/model.safetensors") for path in (run, whole))
    assert all((left[name] == right[name]).all() for name in left)
    with pytest.raises(ConfigError, match=r"can be extended, not shortened: set train\.steps to 4 or more"):
        run_pipeline(resume_config(run, {"train.steps": "3"}), resume=True)


def test_a_run_in_use_is_neither_resumed_nor_deleted(run):
    refusals = []

    def second(**arguments):
        try:
            run_pipeline(resume_config(run), **arguments)
        except ConfigError as error:
            refusals.append(str(error))

    with folder_lock(run):
        for arguments in ({"resume": True}, {"fresh": True}):
            thread = threading.Thread(target=second, kwargs=arguments)
            thread.start()
            thread.join()
    assert len(refusals) == 2
    assert all("is in use by the process with pid" in refusal for refusal in refusals)


def test_a_key_that_is_newer_than_the_run_is_a_change_only_if_it_is_set(tmp_path):
    config = toy_config(tmp_path)
    recipe = dict(record_of(config).recipe)
    del recipe["model.quantize"], recipe["train.warmup_steps"]
    older = RunRecord(recipe=recipe)
    assert refusal(older, config) is None
    assert resumed_record(older, config, allow_changes=False).changes == ()
    message = refusal(older, toy_config(tmp_path, {"train": {"warmup_steps": 3}}))
    assert message is not None
    assert "train.warmup_steps was (not set), now 3." in message


def test_a_run_of_an_earlier_version_with_a_key_that_is_gone_is_resumed(tmp_path):
    config = toy_config(tmp_path)
    older = RunRecord(recipe={**record_of(config).recipe, "rollout.publish_every": 1, "rollout.long_lag": False})
    assert refusal(older, config) is None


def test_without_a_record_a_run_is_resumed_only_if_changes_are_allowed(tmp_path):
    config = toy_config(tmp_path)
    assert read_record(tmp_path) is None
    with pytest.raises(ConfigError, match=r"run\.json is missing.*--allow-changes"):
        resumed_record(None, config, allow_changes=False)
    assert resumed_record(None, config, allow_changes=True).recipe == record_of(config).recipe


@pytest.mark.parametrize("content", ["", "{", "[]", '{"recipe": 3}'])
def test_a_damaged_record_is_one_sentence(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"run\.json is damaged"):
        read_record(tmp_path)


def test_what_may_change_are_keys_of_the_schema():
    keys = flat_keys(Config.model_construct(name="x").model_dump(), "").keys() | {"train.steps"}
    assert {name for name in MAY_CHANGE if not name.endswith(".")} <= keys | {"name", "out"}
