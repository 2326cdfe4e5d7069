"""The commands of pages run in an empty folder, each block in fresh processes, with the files that the page says to
save. Long ones are made short (`executed_pages.py`)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from executed_pages import BLOCK, EXECUTED, IN_A_CLONE, shortened, shown_commands
from tiny_models import tiny_token_classifier
from toy_runs import REPOSITORY

from ansatz.models.tiny import build_tiny_model

SAVED = re.compile(r"`(\w+\.\w+)`[^`]{0,80}:\n\n```\w+\n(.*?)^```|^```yaml\n# ([\w.]+)\n(.*?)^```", re.S | re.M)


def run(block: str, folder: Path, **variables: str) -> None:
    done = subprocess.run(
        ["sh", "-e", "-c", block], cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{block}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder but for the command, a model, a reward model, and two suites."""
    tiny_token_classifier(tmp_path / "PRM")
    (tmp_path / "ansatz").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ansatz "$@"\n', encoding="utf-8")
    (tmp_path / "ansatz").chmod(0o755)
    build_tiny_model(tmp_path / "MODEL", texts=["12+3=15"], hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1)
    for suite in ("gsm8k", "math500"):
        (tmp_path / "DIR" / suite).mkdir(parents=True)
        rows = [{"question": f"{n} + 1", "problem": f"{n} + 1", "answer": f"{n + 1}"} for n in range(3)]
        if suite == "gsm8k":
            rows = [{**row, "answer": f"so #### {row['answer']}"} for row in rows]
        (tmp_path / "DIR" / suite / "test.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return tmp_path


def path_with(folder: Path) -> str:
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_in_an_empty_folder(page: Path, folder: Path):
    text = page.read_text(encoding="utf-8")
    for name, content, other, lines in SAVED.findall(text):
        (folder / (name or other)).write_text(shortened(page, content or lines), encoding="utf-8")
    if "runs/first" in shortened(page, text):
        run("ansatz init p; ansatz train p/recipe.yaml --model.toy true --name first", folder, PATH=path_with(folder))
        run("ansatz train p/recipe.yaml --model.toy true --name second", folder, PATH=path_with(folder))
    blocks = [shortened(page, block) for block in shown_commands(page)]
    assert blocks
    for block in blocks:
        run(block, folder, PATH=path_with(folder))


@pytest.mark.slow
def test_the_recipe_at_the_top_of_the_page_of_keys_trains(folder: Path):
    kind, recipe = BLOCK.findall((REPOSITORY / "docs" / "config.md").read_text(encoding="utf-8"))[0]
    assert kind == "yaml"
    (folder / "my_run.yaml").write_text(recipe.replace("Qwen/Qwen2.5-1.5B-Instruct", "MODEL"), encoding="utf-8")
    split = "ansatz data split p/problems.jsonl --out my_train.jsonl --heldout my_heldout.jsonl --heldout-frac 0.3"
    block = f"ansatz init p; {split}; ansatz train my_run.yaml --model.toy true"
    run(block, folder, PATH=path_with(folder))


@pytest.mark.slow
def test_the_blocks_of_the_first_page_run_on_a_fresh_machine(tmp_path: Path):
    """In a clone, with nothing but what the page names: the system's Python, git and make. The demo has toy size, and
    of the tests one file is run."""
    clone = tmp_path / "clone"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True).stdout
    clone.mkdir()
    archive = subprocess.run(
        ["tar", "--create", "--null", "--files-from=-"], cwd=REPOSITORY, input=files, capture_output=True, check=True
    )
    subprocess.run(["tar", "--extract"], cwd=clone, input=archive.stdout, check=True)
    small = {"ARGS": "--model.toy true", "PYTEST_ADDOPTS": "tests/test_files.py"}
    variables = {"HOME": str(tmp_path), "PYTHONPATH": "", "PYTHON": sys.executable, "VIRTUAL_ENV": "", **small}
    blocks = shown_commands(IN_A_CLONE)
    assert len(blocks) > 5
    for block in blocks:
        run(block, clone, **variables)
