"""A message that advises a command is followed: the test types what it says. Others are checked for verbs and options
that exist."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
from test_docs import fault_of
from toy_runs import REPOSITORY, toy, toy_config, toy_recipe

from ansatz.config.load import load_recipe
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import read_done

ADVICE = re.compile(r"ansatz ([a-z]+(?: [a-z]+)?)((?: +(?:--?[\w-]+|[A-Z{][\w/{}.-]*|\{[^}]*\}))*)")


def sentences() -> list[str]:
    """Every text of the package with spaces, but no docstring; what is filled in is {}."""
    found: list[str] = []
    for file in sorted((REPOSITORY / "ansatz").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        of_docs = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in of_docs:
                found.append(node.value)
    return [text for text in found if " " in text]


def advised() -> set[str]:
    """The commands that messages advise, with their options: `ansatz data filter FILE --out OUT --drop unreadable`."""
    return {match[0] for text in sentences() for match in ADVICE.finditer(text)}


def test_every_command_that_a_message_advises_has_a_verb_and_options_that_exist():
    commands = advised()
    assert len(commands) > 20
    assert any("--resume" in command for command in commands)
    prose = {"ansatz rollouts --"}  # the name of an option is filled in
    wrong = {command: fault for command in commands - prose if (fault := fault_of(command.replace("{}", "X")))}
    assert wrong == {}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a checkpoint whose RL is unfinished, and no evaluation after its start."""
    config = toy_config(
        tmp_path_factory.mktemp("stopped"), {"sft": {"steps": 0}, "train": {"steps": 2}, "evaluate": {"every": 0}}
    )
    run = run_pipeline(config)
    (run / "rl" / "done.json").unlink()
    rows = (run / "rl" / "evaluations.jsonl").read_text().splitlines(keepends=True)
    (run / "rl" / "evaluations.jsonl").write_text("".join(rows[:-1]))
    assert read_done(run / "rl") is None
    return run


@pytest.mark.parametrize("option", [[], ["--best"]])
def test_the_checkpoint_that_export_advises_for_an_unfinished_run_can_be_exported(ansatz, stopped, tmp_path, option):
    code, _, err = ansatz("export", stopped, tmp_path / "model", *option)
    assert code == 2
    checkpoint = re.search(r"checkpoint(?:, such as| instead:) (\S+?)\.?\s", err)
    assert checkpoint is not None, err
    code, _, err = ansatz("export", checkpoint[1], tmp_path / "model")
    assert (code, err) == (0, "")
    assert (tmp_path / "model" / "README.md").is_file()
    folder = stopped / "problems"
    assert "is not a checkpoint" in ansatz("export", folder, tmp_path / "other")[2]


def test_the_recipe_that_train_names_without_one_is_installed(ansatz):
    _, _, err = ansatz("train")
    named = re.search(r"such as (\S+) \(see `ansatz recipes`", err)
    assert named is not None
    assert load_recipe(named[1]).name == named[1]
    assert named[1] in ansatz("recipes")[1]


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("rows.jsonl", "question,answer\n1+1?,2\n", "csv"),
        ("rows.csv", "question,answer\n1+1?,2\n", "csv"),
        ("rows.jsonl", '[\n{"question": "1+1?", "answer": "2"}\n]\n', "json"),
        ("rows.json", '[\n{"question": "1+1?", "answer": "2"}\n]\n', "json"),
    ],
)
def test_a_file_of_another_kind_is_read_as_the_message_says(ansatz, tmp_path, name, text, kind):
    (tmp_path / name).write_text(text)
    data = {part: {"source": "jsonl", "split": part, "path": str(tmp_path / name)} for part in ("train", "heldout")}
    recipe = toy_recipe(tmp_path, {"sft": {"steps": 0}, "data": {"sft": None}})
    given = [f"--data.{part}={value}".replace("'", '"') for part, value in data.items()]
    code, _, err = ansatz("check", recipe, "--prompts", "1", *given)
    assert code == 2
    assert f"In a recipe, use source: {kind}." in err
    assert ("Rename it" in err) == (not name.endswith(f".{kind}"))
    renamed = (tmp_path / name).rename(tmp_path / f"rows.{kind}")
    assert ansatz("data", "peek", renamed)[0] == 0
    rows = load_recipe(recipe, overrides={"data.train": f"{{source: {kind}, split: train, path: {renamed}}}"})
    assert rows.data.train["source"] == kind


def test_a_missing_file_at_the_command_line_is_not_answered_with_a_setting(ansatz, tmp_path):
    _, _, err = ansatz("data", "peek", tmp_path / "none.jsonl")
    assert "does not exist" in err
    assert "setting" not in err


def test_what_a_run_that_exists_advises_works(ansatz, tmp_path):
    recipe = toy_recipe(tmp_path, {"sft": {"steps": 0}, "train": {"steps": 1}})
    assert ansatz("train", recipe)[0] == 0
    _, _, err = ansatz("train", recipe)
    options = [
        shlex.split(each)
        for each in re.findall(r"(--resume \S+?),|(--fresh)|(--name NAME)", err)
        for each in each
        if each
    ]
    assert len(options) == 3
    assert ansatz("train", *options[0])[0] == 0
    assert ansatz("train", recipe, *options[1])[0] == 0
    assert ansatz("train", recipe, "--name", "another")[0] == 0
    assert toy(tmp_path)["name"] != "another"
