from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from given import load_problems

from ansatz.data.base import find_source, source_names
from ansatz.data.generated import LazyProblems
from ansatz.data.word_problems import word_problems
from ansatz.errors import ConfigError, DataError

SOURCE = """
from ansatz.types import Problem

def squares(*, split, count=3):
    for i in range(count):
        yield Problem(id=str(i), question=f"{i} squared?", answers=(str(i * i),), source="squares", split=split)
"""


def test_sources_are_found_by_file_name_and_helpers_are_not() -> None:
    assert {"word_problems", "jsonl"} <= set(source_names())
    assert not {"base", "cursor", "draw", "chains", "wording"} & set(source_names())
    assert find_source("word_problems") is word_problems


def test_a_sequence_is_kept_lazy() -> None:
    problems = load_problems("word_problems", split="heldout", settings={"count": 10**9})
    assert isinstance(problems, LazyProblems)
    assert problems[10**9 - 1].split == "heldout"


def test_a_users_own_source_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    problems = load_problems(f"{tmp_path}/mine.py:squares", split="train", settings={"count": 4})
    assert [p.answer for p in problems] == ["0", "1", "4", "9"]


def test_a_source_without_problems_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    with pytest.raises(DataError, match="no problem in split 'train'"):
        load_problems(f"{tmp_path}/mine.py:squares", split="train", settings={"count": 0})


def test_an_unknown_source_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'word_problems'"):
        load_problems("word_problem", split="train")


def test_unknown_and_missing_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"no setting 'slip_rat'.*'slip_rate'"):
        load_problems("word_problems", split="train", settings={"slip_rat": 0.1})
    with pytest.raises(ConfigError, match="needs the setting 'path'"):
        load_problems("jsonl", split="train")


def test_data_and_prompts_do_not_import_torch() -> None:
    code = (
        "import sys; from ansatz.data.base import source_names; source_names(); import ansatz.prompts.render; "
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
