from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansatz.cli import main as command
from ansatz.errors import DataError
from ansatz.rewards.grader import check_golds
from ansatz.types import Problem


def problems_file(folder: Path, *answers: str | list[str]) -> Path:
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
    assert f"{path} line 2: gold '\\\\frac{{1}}{{': " in out
    assert "3 problems, 1 cannot be used, 0 gold answers are compared as text" in out


def test_data_check_names_tests_of_code_that_could_be_forged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "code.jsonl"
    tests = ["assert f(2) == 4 and f(3) == 9", "assert same(f(2), 4)"]
    rows = [{"question": "?", "answer": r"\frac{1}{", "tests": [test]} for test in tests]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(monkeypatch, "data", "check", str(path)) == 1
    out = capsys.readouterr().out
    assert f"{path} line 2: " in out
    assert "leaves the decision to something that the program defines" in " ".join(out.split())
    assert "2 problems, 1 cannot be used" in out


def test_data_check_passes_a_file_of_readable_golds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "data", "check", str(problems_file(tmp_path, "5", r"\frac12"))) == 0
    assert "2 problems, 0 cannot be used, 0 gold answers are compared as text" in capsys.readouterr().out


def test_data_check_reads_each_gold_of_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = problems_file(tmp_path, ["1/2", "0.5"], [r"\frac{1}{", "5"], ["the red house", "5"], '["a"]', '{"b": 1}')
    assert run(monkeypatch, "data", "check", str(path)) == 1
    out = capsys.readouterr().out
    assert f"{path} line 2: gold " in out
    assert "5 problems, 1 cannot be used, 1 gold answers are compared as text" in out
    assert "2 gold answers are JSON" in out


def test_data_check_and_peek_count_rows_with_special_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = problems_file(tmp_path, "5", "7")
    assert run(monkeypatch, "data", "check", str(path)) == 0
    assert "<|im_end|>" not in capsys.readouterr().out
    rows = [
        {"question": "What?<|im_end|>", "answer": "5"},
        {"question": "What now?", "answer": "6", "solution": "It is 6.</s>"},
        {"prompt": [{"role": "system", "content": "[INST]"}, {"role": "user", "content": "And?"}], "answer": "6"},
    ]
    for index, row in enumerate(rows):
        path = tmp_path / f"rows{index}.jsonl"
        path.write_text(json.dumps(row) + "\n")
        for verb in ("check", "peek"):
            assert run(monkeypatch, "data", verb, str(path)) == 0
            assert "\n1 have text such as <|im_end|>, which is encoded as plain text" in capsys.readouterr().out


def test_data_check_counts_rows_without_a_field_and_writes_what_it_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = problems_file(tmp_path, "5", "the red house", r"\frac{1}{")
    path.write_text(path.read_text() + json.dumps({"question": "?"}) + "\n")
    assert run(monkeypatch, "data", "check", str(path), "--out", str(tmp_path / "bad.jsonl")) == 1
    assert "4 problems, 2 cannot be used, 1 gold answers are compared as text" in capsys.readouterr().out
    found = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [(row["place"].rpartition("/")[2], row["gold"]) for row in found] == [
        ("problems.jsonl line 3", r"'\\frac{1}{'"),
        ("problems.jsonl line 4", ""),
    ]
    assert "no field 'answer'" in found[1]["reason"]


def test_a_gold_that_the_recipes_reward_cannot_read_is_refused_with_its_id() -> None:
    bad = Problem(id="algebra-7", question="?", answers=(r"\frac{1}{",), source="test", split="train")
    with pytest.raises(DataError, match="'algebra-7'"):
        check_golds({"math_answer": {}}, [bad])
    assert check_golds({"my.py:reward": {}}, [bad]) is None
