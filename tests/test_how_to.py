"""Trials of the how-tos: a reward and a loss are added in a copy of the repository exactly as the pages say.

Then `make docs` is run (its generators, in the environment of the tests), and the tests that such a change can turn
red are green.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from executed_pages import BLOCK
from toy_runs import REPOSITORY

pytestmark = pytest.mark.slow
HOW_TO = REPOSITORY / "docs" / "how-to"
COMMON = ("tests/test_docs.py", "tests/test_features.py", "tests/test_imports.py", "tests/test_user_functions.py")
OF_REWARDS = ("tests/rewards/test_every_reward.py",)
OF_LOSSES = [f"tests/objectives/test_{name}.py" for name in ("formulas", "losses", "component_inputs", "build")]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository, as git has it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, tmp_path / name)
    for command in (["git", "init", "--quiet"], ["git", "add", "--all"]):
        subprocess.run(command, cwd=tmp_path, check=True)
    return tmp_path


def python(copy: Path, *arguments: str) -> str:
    paths = os.pathsep.join(map(str, (copy, copy / "packages" / "verify")))
    done = subprocess.run(
        [sys.executable, *arguments], cwd=copy, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def make_docs(copy: Path) -> None:
    target = (copy / "Makefile").read_text(encoding="utf-8").partition("\ndocs: env\n")[2].partition("\n\n")[0]
    modules = re.findall(r"^\t\$\(BIN\)/python -m (tools\..*)$", target, re.M)
    assert len(modules) > 9
    for module in modules:
        python(copy, "-m", *module.split())


def check_code(copy: Path, file: str) -> None:
    for command in (["check"], ["format", "--check"]):
        python(copy, "-m", "ruff", *command, file)


def blocks_of(page: str, kind: str) -> list[str]:
    """The blocks of a page from its last part on."""
    text = (HOW_TO / page).read_text(encoding="utf-8")
    return [block for name, block in BLOCK.findall(text) if name == kind]


def test_a_reward_is_added_as_the_page_says(copy: Path) -> None:
    code = blocks_of("add_a_reward.md", "python")[-1]
    row, section = blocks_of("add_a_reward.md", "markdown")
    (copy / "ansatz" / "rewards" / "brevity.py").write_text(code, encoding="utf-8")
    page = copy / "docs" / "rewards.md"
    text = page.read_text(encoding="utf-8")
    text = text.replace("| [your own](#your-own)", f"{row}| [your own](#your-own)", 1)
    page.write_text(text.replace("## Your own\n", f"{section}\n## Your own\n", 1), encoding="utf-8")
    subprocess.run(["git", "add", "--all"], cwd=copy, check=True)
    make_docs(copy)
    check_code(copy, "ansatz/rewards/brevity.py")
    assert "## brevity" in (copy / "docs" / "settings_rewards.md").read_text(encoding="utf-8")
    python(copy, "-m", "pytest", "-q", "-m", "not slow", *COMMON, *OF_REWARDS)


def test_a_loss_is_added_as_the_page_says(copy: Path) -> None:
    code = blocks_of("add_an_algorithm.md", "python")[-1]
    file = copy / "ansatz" / "objectives" / "surrogates.py"
    file.write_text(f"{file.read_text(encoding='utf-8')}\n\n{code}", encoding="utf-8")
    make_docs(copy)
    check_code(copy, "ansatz/objectives/surrogates.py")
    assert "soft_bound" in (copy / "docs" / "algorithms.md").read_text(encoding="utf-8")
    python(copy, "-m", "pytest", "-q", "-m", "not slow", *COMMON, *OF_LOSSES)
