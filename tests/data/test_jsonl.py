from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ansatz.data.extract import after_hashes, after_sentence, last_box
from ansatz.data.jsonl import jsonl
from ansatz.errors import ConfigError, DataError

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the public data files (../shared/data) are not here")


def write(folder: Path, *rows: Any) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def read(path: str, **settings: Any) -> list[Any]:
    return list(jsonl(split="train", path=path, **settings))


def test_a_plain_row_becomes_a_problem(tmp_path: Path) -> None:
    (problem,) = read(write(tmp_path, {"question": " 1+1? ", "answer": 2}))
    assert (problem.question, problem.answer, problem.solution, problem.split) == ("1+1?", "2", None, "train")
    assert problem.id == f"{tmp_path.name}/rows:1"


def test_field_names_are_free_and_can_have_dots(tmp_path: Path) -> None:
    row = {"q": "1+1?", "reward_model": {"ground_truth": "2"}, "n": 7, "level": 3, "solutions": ["1+1=2", "other"]}
    (problem,) = read(
        write(tmp_path, row),
        question_key="q",
        answer_key="reward_model.ground_truth",
        id_key="n",
        level_key="level",
        solution_key="solutions",
    )
    assert (problem.id, problem.answer, problem.level, problem.solution) == ("7", "2", "3", "1+1=2")


def test_the_last_user_turn_of_messages_is_the_question(tmp_path: Path) -> None:
    turns = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "1+1?")]
    row = {"question": [{"role": role, "content": text} for role, text in turns], "answer": "2"}
    assert read(write(tmp_path, row))[0].question == "1+1?"


def test_answers_after_hashes_and_in_boxes(tmp_path: Path) -> None:
    (gsm,) = read(write(tmp_path, {"question": "?", "answer": "6*200=1200\n#### 1,200"}), answer_from="####")
    assert (gsm.answer, gsm.solution) == ("1200", "6*200=1200\n#### 1,200")
    worked = {"question": "?", "answer": r"First \boxed{1}, so \boxed{\frac{1}{2}}."}
    assert read(write(tmp_path, worked), answer_from="boxed")[0].answer == r"\frac{1}{2}"


@pytest.mark.parametrize(
    ("text", "answer"),
    [("a\n#### -1,234.5", "-1234.5"), ("#### 1,2", "1,2"), ("#### 5\nmore", "5"), ("####", None), ("5", None)],
)
def test_after_hashes(text: str, answer: str | None) -> None:
    assert after_hashes(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1} \boxed{ {2} }", "{2}"),
        (r"\fbox{3}", "3"),
        (r"\boxed {4}", "4"),
        (r"\boxed{5} then \boxed{6", "5"),
        (r"\boxed{}", None),
        ("none", None),
    ],
)
def test_last_box(text: str, answer: str | None) -> None:
    assert last_box(text) == answer


def test_limit_and_empty_lines(tmp_path: Path) -> None:
    rows = [{"question": f"{i}?", "answer": str(i)} for i in range(5)]
    path = write(tmp_path, rows[0], "", rows[1], rows[2])
    assert [p.id.rpartition(":")[2] for p in read(path, limit=2)] == ["1", "3"]


def test_rows_are_read_on_demand(tmp_path: Path) -> None:
    path = write(tmp_path, {"question": "?", "answer": "1"}, "no json")
    assert len(list(islice(jsonl(split="train", path=path), 1))) == 1


def test_a_byte_order_mark_and_other_alphabets_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + json.dumps({"question": "2+2 für π?", "answer": "4"}, ensure_ascii=False).encode()
    )
    assert read(str(path))[0].question == "2+2 für π?"


GOOD = {"question": "?", "answer": "1"}


@pytest.mark.parametrize(
    ("row", "settings", "message"),
    [
        ('{"question": ', {}, r"not valid JSON .*Repair the line"),
        ([1, 2], {}, r"got \[1, 2\], expected a JSON object"),
        ({"question": "?"}, {}, r"no field 'answer' \(its fields: 'question'\).*answer_key"),
        ({"problem": "?", "answer": "1"}, {}, r"no field 'question' \(its fields: 'problem', 'answer'\).*question_key"),
        ({"question": "?", "answer": "  "}, {}, r"'answer' is empty"),
        ({"question": "?", "answer": None}, {}, r"'answer' is None, expected text or a number"),
        ({"question": "?", "answer": True}, {}, r"'answer' is True, expected"),
        ({"question": "", "answer": "1"}, {}, r"'question' is empty"),
        ({"question": [{"role": "system", "content": "x"}], "answer": "1"}, {}, r"no user turn"),
        ({"question": [{"role": "user", "content": c} for c in ("1+1?", " ")], "answer": "1"}, {}, r"no user turn"),
        (GOOD, {"answer_from": "####"}, r"'#### ANSWER' at its end, got '1'"),
        ({"question": "?", "answer": "####"}, {"answer_from": "####"}, r"'#### ANSWER' at its end"),
        (GOOD, {"answer_from": "boxed"}, r"no a? ?\\boxed"),
        ({**GOOD, "solutions": []}, {"solution_key": "solutions"}, r"'solutions' is \[\], expected a solution text"),
        (GOOD, {"level_key": "level"}, r"no field 'level'.*level_key"),
        (GOOD, {"answer_key": "answer.value"}, r"no field 'answer.value'"),
    ],
)
def test_a_wrong_row_is_named_with_file_and_line(
    tmp_path: Path, row: Any, settings: dict[str, Any], message: str
) -> None:
    first = {"question": "?", "answer": r"\boxed{1} #### 1", "solutions": ["x"], "level": 1}
    if settings.get("answer_key"):
        first["answer"] = {"value": "1"}
    path = write(tmp_path, first, "", row)
    with pytest.raises(DataError, match=rf"rows.jsonl line 3: .*{message}"):
        read(path, **{"answer_from": "field", **settings})


def test_a_line_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"question": "?", "answer": "1"}\n\xff\xfe\n')
    with pytest.raises(DataError, match="line 2: not valid JSON"):
        read(str(path))


def test_a_missing_file_a_folder_and_a_wrong_setting_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.jsonl' does not exist .*expected a JSONL file"):
        jsonl(split="train", path=str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(DataError, match="is a folder"):
        jsonl(split="train", path=str(tmp_path))
    with pytest.raises(ConfigError, match="answer_from = 'box', expected one of 'auto', 'field', '####', 'boxed'"):
        jsonl(split="train", path="x", answer_from="box")
    with pytest.raises(ConfigError, match="limit = 0"):
        jsonl(split="train", path="x", limit=0)


def test_the_gsm8k_sample_reads() -> None:
    problems = read(str(ROOT / "examples/data/gsm8k_sample.jsonl"), answer_from="####")
    assert len(problems) == 20
    assert [p.answer for p in problems[:3]] == ["72", "10", "5"]
    assert (ROOT / "examples/data/LICENSE").read_text().count("MIT License") == 1


@needs_shared
@pytest.mark.parametrize(("split", "rows"), [("train", 7473), ("test", 1319)])
def test_gsm8k_as_published_equals_its_uniform_form(split: str, rows: int) -> None:
    published = read(str(SHARED / f"gsm8k/original_{split}.jsonl"), answer_from="####")
    uniform = read(str(SHARED / f"gsm8k/{split}.jsonl"), question_key="problem", id_key="id", solution_key="solution")
    assert len(published) == len(uniform) == rows
    assert [(p.question, p.answer) for p in published] == [(u.question, u.answer) for u in uniform]


@needs_shared
def test_every_uniform_file_reads() -> None:
    for path in sorted(SHARED.glob("*/*.jsonl")):
        if path.name.startswith("original"):
            continue
        problems = read(str(path), question_key="problem", id_key="id")
        assert problems, path
        assert len({p.id for p in problems}) == len(problems), path


@needs_shared
def test_boxes_of_math_solutions_are_their_answers() -> None:
    stated = read(str(SHARED / "math/test.jsonl"), question_key="problem", limit=1000)
    boxed = read(
        str(SHARED / "math/test.jsonl"), question_key="problem", answer_key="solution", answer_from="boxed", limit=1000
    )
    assert [p.answer for p in boxed] == [p.answer for p in stated]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("First the answer is 1. Later The answer is: 3", "3"),
        ("The answer is: 2\nSo the final answer is 1,200.\nDone.", "1200"),
        ("The answer is 4. This answer is\nright.", "4. This answer is"),
        ("The answer is 5\nThe answer is", "5"),
        ("The answer is:\n6", None),
        ("No statement.", None),
    ],
)
def test_the_last_statement_of_the_answer_counts_also_on_the_line_of_another(text: str, answer: str | None) -> None:
    assert after_sentence(text) == answer
