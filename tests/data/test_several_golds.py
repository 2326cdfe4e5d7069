"""A list of gold answers means any of them, from the file to the reward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansatz_verify.grade import equivalent, verify

from ansatz.data.formats import open_rows
from ansatz.data.hygiene.normalize import same_answer
from ansatz.data.row_problems import RowSettings, rows_with_problems
from ansatz.data.store import read_problems, write_problems
from ansatz.errors import ConfigError, DataError
from ansatz.registry import bind
from ansatz.rewards.math_answer import check_golds
from ansatz.types import Problem, Reason, joined_golds, problem_from_json, prompt_from_json, to_json


def read(folder: Path, row: dict[str, Any], name: str = "rows.jsonl") -> Problem:
    path = folder / name
    if name.endswith(".csv"):
        path.write_text(
            f'question,answer\n{row["question"]},"{json.dumps(row["answer"]).replace(chr(34), chr(34) * 2)}"\n'
        )
    else:
        path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    ((_, problem),) = rows_with_problems(open_rows(path), RowSettings(), split="train", source="test")
    return problem


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_any_answer_of_a_list_is_right_also_after_it_was_stored(tmp_path: Path, name: str) -> None:
    problem = read(tmp_path, {"question": "Half of a dozen?", "answer": ["6", "1/2 dozen", "six"]}, name)
    write_problems(tmp_path / "stored.jsonl", [problem])
    for each in (problem, *read_problems(tmp_path / "stored.jsonl")):
        assert each.answers == ("6", "1/2 dozen", "six")
        check_golds([each])
        for said, right in (("6", True), ("six", True), ("6.0", True), ("7", False)):
            assert verify(each.answer, f"So \\boxed{{{said}}}").correct is right
            assert equivalent(each.answer, said).correct is right
    assert verify(problem.answer, "no box").reason is Reason.NO_ANSWER


def test_the_boxes_of_a_row_are_all_gold_answers(tmp_path: Path) -> None:
    boxes = ["so \\boxed{3}", "no box here", "thus \\boxed{4}", "or \\boxed{3}"]
    problem = read(tmp_path, {"prompt": "x?", "solutions": boxes})
    assert problem.answers == ("3", "4")
    assert problem.solution == "so \\boxed{3}"
    assert read(tmp_path, {"prompt": "x?", "solutions": boxes[::3]}).answer == "3"


def test_one_answer_and_lists_that_are_mathematics_stay_text(tmp_path: Path) -> None:
    for answer in ("[1, 2]", "(1, 2)", "[a, b]", '"quoted"', "[1"):
        assert read(tmp_path, {"question": "?", "answer": answer}).answers == (answer,)
    assert read(tmp_path, {"question": "?", "answer": ["5", "5"]}).answer == "5"
    assert read(tmp_path, {"question": "?", "answer": [5, 0.5]}).answers == ("5", "0.5")
    for wrong in ([], ["5", None], [["5"], "6"], ["5", True]):
        with pytest.raises(DataError, match="line 1: the field 'answer' is"):
            read(tmp_path, {"question": "?", "answer": wrong})


@pytest.mark.parametrize(
    ("stored", "answers"),
    [
        ("5", ("5",)),
        ("", ()),
        (["1/2", "0.5"], ("1/2", "0.5")),
        ('["1/2", "0.5"]', ("1/2", "0.5")),
        (['["a"]'], ('["a"]',)),
    ],
)
def test_problems_and_tickets_that_earlier_versions_stored_are_read(stored: str | list[str], answers: object) -> None:
    """Problems had a list in their row, and prompts of tickets a text with JSON in it."""
    row = {"id": "p", "question": "?", "answer": stored, "source": "test", "split": "train"}
    problem = problem_from_json(row)
    assert problem.answers == answers
    assert problem_from_json(json.loads(json.dumps(to_json(problem)))) == problem
    assert prompt_from_json({"problem": row, "text": "?", "token_ids": [1]}).problem == problem


@pytest.mark.parametrize("answers", ["72", 72, ["72"], (72,), ("72", None), {"72"}])
def test_answers_that_are_no_tuple_of_texts_are_refused(answers: Any) -> None:
    with pytest.raises(ValueError, match=r"answers = .*72.*: expected a tuple of texts, such as \('72',\)"):
        Problem(id="p", question="?", answers=answers, source="test", split="train")


def test_every_gold_answer_of_a_list_must_be_readable() -> None:
    problem = Problem(id="p", question="?", answers=("5", "\\frac{1}{"), source="test", split="train")
    with pytest.raises(DataError, match="cannot be read"):
        check_golds([problem])
    assert same_answer(joined_golds(["1/2", "0.5"]), "0.5")
    assert not same_answer(joined_golds(["1/2", "0.5"]), "5")


def test_settings_of_other_projects_are_answered_with_ours() -> None:
    def source(*, question_key: str = "", answer_key: str = "", prompt: str = "") -> None: ...

    for other, ours in (("prompt_key", "question_key"), ("gold_key", "answer_key"), ("label_key", "answer_key")):
        with pytest.raises(ConfigError, match=f"has no setting '{other}'. Did you mean '{ours}'"):
            bind(source, {other: "x"}, what="data source 'jsonl'")
