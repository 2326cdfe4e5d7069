"""The user's own files are a part of the run: changed between a kill and the resume, they are refused by name."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from toy_runs import toy_config

from ansatz.errors import ConfigError
from ansatz.loop.run_record import RunRecord, read_record, record_of, resumed_record
from ansatz.loop.user_code import file_digests
from ansatz.trust import trusted

REWARD = "from scale import SCALE\n\n\ndef brief(rollouts):\n    return [SCALE for _ in rollouts]\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(REWARD)
    (tmp_path / "scale.py").write_text("SCALE = 1.0\n")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "preset.yaml").write_text("preset: grpo\n")
    (tmp_path / "prompt.txt").write_text("{question}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def code_of(*texts):
    return list(file_digests(trusted({"anything": [{"at": {"any": list(texts)}}]})))


@pytest.mark.parametrize(
    "line",
    [
        "import scale",
        "import scale as other, os",
        "from scale import SCALE",
        "def inside():\n    from scale import *",
        "try:\n    import scale\nexcept ImportError:\n    pass",
        "import importlib\nscale = importlib.import_module('scale')",
        "import importlib\nscale = importlib.import_module('.scale', __package__)",
        "scale = __import__('scale')",
    ],
)
def test_an_import_is_found_in_every_form(project, line):
    (project / "mine.py").write_text(line)
    assert code_of("mine.py:brief") == ["mine.py", "scale.py"]


def test_imports_of_imports_packages_and_relative_ones_are_found_and_nothing_else(project):
    package = project / "tricks"
    package.mkdir()
    for name, text in {
        "__init__": "from .first import a",
        "first": "from . import second\nfrom .deep.third import b",
        "second": "import mine",  # a circle
        "unused": "",
    }.items():
        (package / f"{name}.py").write_text(text)
    (package / "deep").mkdir()
    (package / "deep" / "third.py").write_text("from .. import second\nimport json, torch")
    (project / "mine.py").write_text("import tricks")
    found = ["__init__.py", "deep/third.py", "first.py", "second.py"]
    assert code_of("mine.py:brief") == ["mine.py", *(f"tricks/{name}" for name in found)]
    assert code_of(f"{project}/mine.py:brief") == [str(project / each) for each in code_of("mine.py:brief")]


def test_a_file_that_python_cannot_read_counts_without_imports(project):
    (project / "mine.py").write_text("def (:")
    assert code_of("mine.py:brief") == ["mine.py"]


def test_a_module_of_the_users_path_counts_and_installed_ones_do_not(project, monkeypatch):
    monkeypatch.syspath_prepend(project)
    assert code_of("mine:brief") == ["mine.py", "scale.py"]
    others = ("json:loads", "torch.optim:Adam", "ansatz.rewards.base:rewards", "no_such_module:f", "http://x:80")
    assert code_of(*others, "x" * 5000 + ".py:f", "a\0.py:f", "missing.py:f", "auto") == []


def refusal(record, config):
    with pytest.raises(ConfigError) as error:
        resumed_record(record, config, allow_changes=False)
    return str(error.value)


@pytest.mark.parametrize("file", ["mine.py", "scale.py", "preset.yaml", "prompt.txt"])
def test_a_changed_file_is_refused_by_name_or_accepted_and_recorded(project, file):
    given = {"rewards": {"mine.py:brief": {}}, "algorithm": {"preset": "preset.yaml"}}
    config = toy_config(project, {**given, "data": {"template": "prompt.txt"}})
    record_of(config).write(project)
    record = read_record(project)
    assert resumed_record(record, config, allow_changes=False) == record
    (project / file).write_text((project / file).read_text() + "# edited\n")
    assert f"files differ from those which the run was started with: {file} has changed." in refusal(record, config)
    accepted = resumed_record(record, config, allow_changes=True)
    assert accepted.changes[-1]["files"] == {file: "has changed"}
    assert accepted.identities[0] == record.identities[0]
    assert len(accepted.identities) == 2
    assert resumed_record(accepted, config, allow_changes=False) == accepted


def test_a_file_that_is_gone_or_new_is_a_change(project):
    config = toy_config(project, {"rewards": {"mine.py:brief": {}}})
    record = record_of(config)
    (project / "scale.py").rename(project / "scale")
    assert "scale.py is gone" in refusal(record, config)
    (project / "mine.py").write_text(REWARD + "import unused\n")
    assert "mine.py has changed; scale.py is gone; unused.py is new" in refusal(record, config)


def test_a_template_that_an_older_version_did_not_record_is_recorded_and_is_no_change(project):
    config = toy_config(project, {"data": {"template": {"name": "prompt.txt"}}})
    record = record_of(config)
    older = replace(record, code={})
    resumed = resumed_record(older, config, allow_changes=False)
    assert (list(resumed.code), resumed.changes) == (["prompt.txt"], ())
    (project / "prompt.txt").write_text("Now: {question}\n")
    assert "prompt.txt has changed" in refusal(resumed, config)
    (project / "other.txt").write_text("{question}\n")
    other = toy_config(project, {"data": {"template": {"name": "other.txt"}}})
    with pytest.raises(ConfigError, match=r"data\.template\.name was"):
        resumed_record(older, other, allow_changes=False)
    assert resumed_record(older, other, allow_changes=True).changes[-1]["files"] == {"other.txt": "is new"}


def test_a_record_of_an_older_version_names_no_code_and_is_accepted(project):
    config = toy_config(project, {"rewards": {"mine.py:brief": {}}})
    record_of(config).write(project)
    content = json.loads((project / "run.json").read_text())
    del content["code"], content["identities"]
    (project / "run.json").write_text(json.dumps(content))
    older = read_record(project)
    assert older == RunRecord(recipe=older.recipe, signatures=older.signatures)
    resumed = resumed_record(older, config, allow_changes=False)
    assert resumed.code == record_of(config).code
    assert (resumed.changes, resumed.identities) == ((), ())


@pytest.fixture
def model(project):
    """The files of a model folder, with weights that are too large to be read as a whole."""
    folder = project / "models" / "base"
    (folder / "training").mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "README.md", "training/state.json"):
        (folder / name).write_text("{}")
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(80 << 20)
    return folder


def test_the_files_of_a_local_model_count_and_its_times_do_not(model):
    before = file_digests({"model": {"path": "models/base"}})
    assert list(before) == [f"models/base/{name}" for name in ("config.json", "model.safetensors", "tokenizer.json")]
    for path in model.rglob("*"):
        os.utime(path, (1, 1))
    (model / "README.md").write_text("changed")
    assert file_digests({"model": {"path": "models/base"}}) == before


@pytest.mark.parametrize("change", ["weights", "length", "config.json"])
def test_a_model_that_has_changed_between_kill_and_resume_is_refused(model, change):
    config = toy_config(model.parent, {"model": {"path": "models/base"}})
    record = record_of(config)
    name = "config.json" if change == "config.json" else "model.safetensors"
    with (model / name).open("r+b") as file:
        if change == "weights":  # training changes all of them
            file.write(bytes([1]) * (80 << 20))
        elif change == "length":
            file.truncate((80 << 20) + 8)
        else:
            file.write(b"[]")
    with pytest.raises(ConfigError, match=rf"files differ .*: models/base/{name} has changed\. Restore the files"):
        resumed_record(record, config, allow_changes=False)
    accepted = resumed_record(record, config, allow_changes=True)
    assert accepted.changes[-1]["files"] == {f"models/base/{name}": "has changed"}


@pytest.mark.parametrize("folder", ["model", "rl", "grpo", "toy", "train", "chat", "runs", "jsonl", "adamw", "rewards"])
def test_a_word_of_a_recipe_that_is_also_the_folder_of_a_model_is_no_code(project, folder):
    config = toy_config(project, {"algorithm": {"preset": "grpo"}})
    before = file_digests(config.model_dump())
    (project / folder).mkdir()
    (project / folder / "config.json").write_text("{}")
    (project / f"{folder}.txt").write_text("")
    assert file_digests(config.model_dump()) == before
    assert resumed_record(record_of(config), config, allow_changes=False).changes == ()


def test_only_declared_paths_are_files_and_a_folder_of_data_or_a_name_on_a_server_is_none(project):
    (project / "base").mkdir()
    (project / "base" / "config.json").write_text("{}")
    for declared in (
        {"model": {"path": "base"}},
        {"rejection": {"teacher": "base"}},
        {"rewards": {"learned": {"model": "base"}}},
    ):
        assert list(file_digests(declared)) == ["base/config.json"]
    for other in (
        {"name": "base"},
        {"base": {"path": 1}},
        {"data": {"train": {"source": "hub", "path": "base"}}},
        {"rewards": {"judge": {"url": "http://127.0.0.1:1", "model": "base"}}},
        {"rollout": {"stop": ["prompt.txt", "base"]}},
    ):
        assert file_digests(other) == {}
    for template in ({"name": "chat", "user": "prompt.txt"}, {"name": "prompt.txt", "num_shots": 1}):
        assert list(file_digests({"data": {"template": template}})) == ["prompt.txt"]
