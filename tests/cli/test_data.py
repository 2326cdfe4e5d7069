from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansatz.cli import main as command
from ansatz.errors import DataError
from ansatz.rewards.grader import check_golds
from ansatz.types import Problem


def problems_file(folder: Path, *answers: str) -> Path:
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps({"question": "?", "answer": answer}) + "\n" for answer in answers))
    return path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["ansatz", *arguments])
    with pytest.raises(SystemExit) as stop:
        command.main()
    return int(stop.value.code or 0)


def test_data_check_names_the_line_of_a_gold_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = problems_file(tmp_path, "5", r"\frac{1}{", "7")
    assert run(monkeypatch, "data", "check", str(path)) == 1
    out = capsys.readouterr().out
    assert f"{path}:2:" in out
    assert "3 problems, 1 unreadable gold answers" in out


def test_data_check_passes_a_file_of_readable_golds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "data", "check", str(problems_file(tmp_path, "5", r"\frac12"))) == 0
    assert "2 problems, 0 unreadable gold answers" in capsys.readouterr().out


def test_a_gold_that_the_recipes_reward_cannot_read_is_refused_with_its_id() -> None:
    bad = Problem(id="algebra-7", question="?", answer=r"\frac{1}{", source="test", split="train")
    with pytest.raises(DataError, match="'algebra-7'"):
        check_golds({"math_answer": {}}, [bad])
    assert check_golds({"my.py:reward": {}}, [bad]) is None
