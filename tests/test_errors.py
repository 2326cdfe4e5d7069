"""What is advised can be installed, now and after the first release. One constant decides which of the two it is."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from toy_runs import REPOSITORY

from ansatz import errors
from ansatz.cli import model_card
from ansatz.config.load import load_recipe
from ansatz.errors import install_command

EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
SAYS_WHAT_TO_DO_AT_A_RELEASE = {"ansatz/errors.py", "ansatz/cli/model_card.py", "notes/releasing.md"}


def names(requirements: list[str]) -> set[str]:
    return {Requirement(each).name for each in requirements}


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"dev"}))
def test_the_packages_of_an_extra_are_named_until_there_is_a_release(extra: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/with space/python")
    python, *rest = shlex.split(install_command(extra))
    assert (python, rest[:3]) == ("/with space/python", ["-m", "pip", "install"])
    assert names(rest[3:]) == names(EXTRAS[extra])
    monkeypatch.setattr(errors, "PUBLISHED", True)
    assert shlex.split(install_command(extra))[3:] == ["install", f"ansatz-rl[{extra}]"]


def test_packages_of_several_extras_are_named_once(monkeypatch: pytest.MonkeyPatch):
    assert sorted(names(shlex.split(install_command("lora", "qlora"))[4:])) == ["bitsandbytes", "peft"]


def test_a_clone_that_was_never_installed_is_named_by_its_folder(monkeypatch: pytest.MonkeyPatch):
    def absent(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    assert shlex.split(install_command("lora", "ray"))[5] == f"{REPOSITORY}[lora,ray]"


def test_a_model_card_and_all_pages_name_the_package_only_if_it_is_published(monkeypatch: pytest.MonkeyPatch):
    config = load_recipe("tiny_arithmetic_grpo_cpu")
    files = [
        file
        for pattern in (
            "*.md",
            "docs/**/*.md",
            "notes/*.md",
            "ansatz/**/*.py",
            "ansatz/**/*.yaml",
            "examples/*",
            "notebooks/*",
        )
        for file in REPOSITORY.glob(pattern)
        if file.is_file() and file.name != "CHANGELOG.md"
    ]
    assert len(files) > 400
    named = re.compile(r"pip install (--[\w-]+ )*'?\"?\\?\"?ansatz-rl")
    found = {str(file.relative_to(REPOSITORY)) for file in files if named.search(file.read_text(encoding="utf-8"))}
    assert found - SAYS_WHAT_TO_DO_AT_A_RELEASE == set() or errors.PUBLISHED
    for published, command in ((False, "pip install ./packages/verify ."), (True, "pip install ansatz-rl==1.2.3")):
        monkeypatch.setattr(model_card, "PUBLISHED", published)
        assert f"```sh\n{command}" in model_card._repetition(config, version="1.2.3", num_changes=0)
