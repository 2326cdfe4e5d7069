"""data.unfit: rows that a run cannot use stop it with one message, or are left out and reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toy_runs import toy_config

from ansatz.data.store import read_problems
from ansatz.errors import DataError
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_sources import UnfitProblems
from ansatz.track.report import write_report
from ansatz.types import Problem


def problem(name: str, answer: str = "5") -> Problem:
    return Problem(id=name, question="2+3?", answers=(answer,), source="test", split="train", meta={"line": 7})


def refuses_words(problems: Any) -> None:
    for row in problems:
        if not row.answer.isdigit():
            raise DataError(f"{row.answer} is a word.")


def test_all_unfit_rows_are_counted_and_the_first_five_are_shown_with_gold_and_reason() -> None:
    problems = [problem(f"p{i}", "word" if i % 2 else "5") for i in range(20)]
    with pytest.raises(DataError) as error:
        UnfitProblems("error").usable("train", problems, refuses_words)
    message = str(error.value)
    assert message.startswith("data.train: 10 of 20 rows cannot be used:\n")
    assert "\n  problem 'p9' (line 7): gold 'word': word is a word.\n  and 5 more\n" in message
    assert "p11" not in message
    assert "data.unfit: drop" in message
    assert "ansatz data filter FILE --out OUT --drop unreadable" in message


def test_a_reason_that_holds_for_all_rows_is_given_once() -> None:
    def refuses_all(problems: Any) -> None:
        for row in problems:
            raise DataError(f"the prompt of problem {row.id!r} has {len(row.id)} tokens.")

    with pytest.raises(DataError) as error:
        UnfitProblems("error").usable("train", [problem(f"p{i}") for i in range(20)], refuses_all)
    message = str(error.value)
    assert message.startswith(
        "data.train: 20 of 20 rows cannot be used, all for the same reason. The first: problem 'p0'"
    )
    assert message.count("the prompt of problem") == 1
    assert "\n" not in message
    assert "drop" not in message


def test_unfit_rows_are_left_out_and_remembered_if_the_recipe_says_so() -> None:
    unfit = UnfitProblems("drop")
    kept = unfit.usable("train", [problem("a"), problem("b", "word"), problem("c")], refuses_words)
    assert [row.id for row in kept] == ["a", "c"]
    assert [(row.place, row.gold) for row in unfit.dropped["train"]] == [("problem 'b' (line 7)", "'word'")]
    fit = [problem("a")]
    assert unfit.usable("heldout", fit, refuses_words) is fit
    with pytest.raises(DataError, match="2 of 2 rows cannot be used"):
        unfit.usable("train", [problem("b", "word")] * 2, refuses_words)


ROWS = [
    {"question": "Ana has 3 pens. Ben gives Ana 4 pens. How many pens does Ana have now?", "answer": "7"},
    {"question": "Ana has 3 pens and loses one. How many pens does Ana have now?", "answer": r"\frac{1}{"},
    {"question": "Ana has 3 pens and wins one. How many pens does Ana have now?"},
    {"question": "Ana has 8 pens. " + "Ben looks at the pens. " * 300 + "How many are left?", "answer": "8"},
    {"question": "Ana has 5 pens and finds 2 pens. How many pens does Ana have now?", "answer": "7"},
]


def recipe(folder: Path, unfit: str) -> dict[str, Any]:
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    train = {"source": "jsonl", "split": "train", "path": str(path)}
    return {"data": {"unfit": unfit, "train": train}, "train": {"steps": 1}, "rollout": {"prompts_per_step": 2}}


def without(section: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key not in keys}


def config_of(folder: Path, unfit: str) -> Any:
    changes = recipe(folder, unfit)
    config = toy_config(folder, without(changes, "data"))
    data = config.data.model_copy(update={"unfit": unfit, "train": changes["data"]["train"]})
    return config.model_copy(update={"data": data})


def test_a_run_refuses_unfit_rows_before_anything_is_written(tmp_path: Path) -> None:
    config = config_of(tmp_path, "error")
    with pytest.raises(DataError, match=r"data\.train: 2 of 5 rows cannot be used"):
        run_pipeline(config)
    assert not config.run_dir.exists()


def test_a_run_leaves_unfit_rows_out_and_reports_them(tmp_path: Path) -> None:
    config = config_of(tmp_path, "drop")
    folder = run_pipeline(config)
    kept = read_problems(folder / "problems" / "train.jsonl")
    assert [row.meta["line"] for row in kept] == [1, 5]
    rows = json.loads((folder / "problems" / "unfit.json").read_text())
    assert set(rows) == {"train"}
    reasons = [row["reason"] for row in rows["train"]]
    assert len(reasons) == 3
    assert "no field 'answer'" in reasons[0]
    assert "cannot be read" in reasons[1]
    assert "the limit is 256" in reasons[2]
    page = write_report(folder).read_text()
    assert "train: 3 rows that cannot be used were left out (data.unfit: drop)" in page
