from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ansatz.data.jsonl import jsonl
from ansatz.errors import DataError
from ansatz.types import Problem

ASKED = "What is $1+1$?"
DAPO = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
    + ASKED
    + '\n\nRemember to put your answer on its own line after "Answer:".'
)
STEPS = "Please reason step by step, and put your final answer within \\boxed{}."
BOBA = f"<|User|>\n{ASKED}\n{STEPS}<|Assistant|><think>\n"
VERL = ASKED + ' Let\'s think step by step and output the final answer after "####"'


def read(folder: Path, *rows: Any, **settings: Any) -> list[Problem]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(jsonl(split="train", path=str(path), **settings))


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    ("row", "solution", "level"),
    [
        ({"question": ASKED, "answer": "1+1=2\n#### 2"}, "1+1=2\n#### 2", ""),
        ({"problem": ASKED, "solution": r"So \boxed{2}.", "level": "Level 1"}, r"So \boxed{2}.", "Level 1"),
        ({"problem": ASKED, "answer": "2", "solution": "1+1=2", "level": 3}, "1+1=2", "3"),
        ({"prompt": user(DAPO), "reward_model": {"ground_truth": "2", "style": "rule"}}, None, ""),
        ({"prompt": user(VERL), "reward_model": {"ground_truth": ["2"]}}, None, ""),
        (
            [{"from": "human", "value": ASKED}, {"from": "assistant", "ground_truth": {"value": "2", "rate": 0.5}}],
            None,
            "",
        ),
        ({"prompt": BOBA, "solutions": [r"\boxed{2}", "other"], "query_id": "a"}, r"\boxed{2}", ""),
    ],
    ids=["gsm8k", "math", "uniform", "dapo", "verl", "open_reasoner", "boba"],
)
def test_published_shapes_need_no_keys(tmp_path: Path, row: Any, solution: str | None, level: str) -> None:
    (problem,) = read(tmp_path, row)
    assert (problem.question, problem.answer, problem.solution, problem.level) == (ASKED, "2", solution, level)


def test_meta_holds_unused_fields_and_the_line(tmp_path: Path) -> None:
    puzzle = {"problem": "Make 24.", "answer": "4*6", "nums": [4, 6], "target": 24}
    assert read(tmp_path, puzzle)[0].meta == {"nums": [4, 6], "target": 24, "line": 1}
    code = {"prompt": "Sort.", "answer": "-", "tests": ["assert f([2, 1]) == [1, 2]"]}
    assert read(tmp_path, puzzle | {"prompt": "x"}, code | {"problem": "y"})[1].meta["tests"] == code["tests"]
    nested = {"prompt": "?", "reward_model": {"ground_truth": "2", "style": "rule"}, "ability": "math"}
    assert read(tmp_path, nested)[0].meta == {"reward_model": {"style": "rule"}, "ability": "math", "line": 1}
    bare = {"prompt": "?", "reward_model": {"ground_truth": "2"}}
    assert read(tmp_path, bare)[0].meta == {"line": 1}


def test_the_first_rows_shape_holds_for_the_file(tmp_path: Path) -> None:
    first = {"question": ASKED, "answer": "1+1=2\n#### 2"}
    with pytest.raises(DataError, match=r"line 2: the answer text has no '#### ANSWER' at its end, got 'two'"):
        read(tmp_path, first, {"question": ASKED, "answer": "two"})
    with pytest.raises(DataError, match=r"line 2: the row has no field 'question' \(its fields: 'problem'"):
        read(tmp_path, first, {"problem": ASKED, "answer": "#### 2"})


def test_a_recognised_field_can_be_missing_from_a_row(tmp_path: Path) -> None:
    rows = read(tmp_path, {"question": "?", "answer": "2", "solution": "1+1=2"}, {"question": "?", "answer": "3"})
    assert [row.solution for row in rows] == ["1+1=2", None]


def test_an_instruction_is_removed_only_if_a_question_is_left(tmp_path: Path) -> None:
    assert read(tmp_path, {"question": STEPS, "answer": "2"})[0].question == STEPS
    asks = "What does 'Please reason step by step' mean?"
    assert read(tmp_path, {"question": asks, "answer": "2"})[0].question == asks


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_files_are_read_and_broken_ones_named(tmp_path: Path, ending: str) -> None:
    lines = "".join(json.dumps({"question": f"{i}?", "answer": i}) + "\n" for i in range(2000)).encode()
    pack = gzip.compress if ending == "gz" else pytest.importorskip("zstandard").compress
    path = tmp_path / f"rows.jsonl.{ending}"
    path.write_bytes(pack(lines))
    problems = list(jsonl(split="train", path=str(path)))
    assert [p.answer for p in problems] == [str(i) for i in range(2000)]
    assert problems[0].source == f"{tmp_path.name}/rows"
    path.write_bytes(b"\0" + pack(lines)[1:])
    with pytest.raises(DataError, match=r"rows.jsonl.* cannot be decompressed"):
        list(jsonl(split="train", path=str(path)))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("question", {"Question": "What?", "Correct Answer": "4", "Incorrect Answer 1": "\ud83d"}),
        ("tools", {"question": "What?", "answer": "4", "tools": [{"name": "\ud83d"}]}),
        ("chat_template_kwargs", {"question": "What?", "answer": "4", "chat_template_kwargs": {"a": "\ud83d"}}),
    ],
)
def test_half_of_a_character_in_an_option_or_for_the_chat_template_is_refused(tmp_path, name, fields):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(fields) + "\n")
    with pytest.raises(DataError, match=rf"line 1: the {name} has half of a character"):
        list(jsonl(split="train", path=str(path)))


@pytest.mark.parametrize("field", ["question", "answer", "solution", "level"])
def test_half_of_a_character_is_refused_with_its_place(tmp_path, field):
    row = {"question": "What is 2 + 2?", "answer": "4", "solution": "It is 4."}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**row, field: "a \ud83d b"}) + "\n")
    with pytest.raises(DataError, match=rf"line 1: the {field} has half of a character \('\\ud83d' at position 2\)"):
        list(jsonl(split="train", path=str(path)))
