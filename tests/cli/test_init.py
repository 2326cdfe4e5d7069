"""`ansatz init`: the project that it writes is one that trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ansatz
from ansatz.cli.init import init
from ansatz.errors import ConfigError
from ansatz.rewards.grader import check_golds
from ansatz.track.rollout_table import read_all
from ansatz.types import Problem


def test_the_project_trains_from_another_folder_with_its_own_reward(tmp_path, monkeypatch: pytest.MonkeyPatch):
    init(tmp_path / "project")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = ansatz.train_recipe(
        tmp_path / "project" / "recipe.yaml",
        quiet=True,
        sft={"steps": 2},
        rollout={"samples_per_prompt": 2},
        train={"steps": 2},
        evaluate={"samples_per_prompt": 1, "k": 1},
    )
    assert (run.folder / "card.json").is_file()
    rows = [json.loads(line) for line in (run.folder / "rl" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert "reward/rewards.py:brief" in rows[0]
    assert all(row["parts"].keys() == {"math_answer", "rewards.py:brief"} for row in read_all(run.folder))
    report = (run.folder / "report.html").read_text(encoding="utf-8")
    assert "10 of 10 questions are also in data.sft and data.train, so the score is how well they are" in report
    assert "never trained on" not in report


def test_the_problems_are_ten_that_the_verifier_reads_with_solutions_that_it_accepts(tmp_path):
    init(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "problems.jsonl").read_text().splitlines()]
    assert len(rows) == 10
    problems = [
        Problem(id=str(index), question=row["question"], answers=(row["answer"],), source="", split="")
        for index, row in enumerate(rows)
    ]
    check_golds({"math_answer": {}}, problems)
    assert all(ansatz.verify(row["answer"], row["solution"]) for row in rows)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_exists_is_not_overwritten(tmp_path: Path, kind: str):
    target = tmp_path / "project"
    if kind == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "recipe.yaml").write_text("mine")
    with pytest.raises(ConfigError, match=r"is not empty|is a file"):
        init(target)
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]
