"""Fields that nothing uses are named once with their count, and thoughts, pictures and JSON texts are what they are."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from ansatz.data.conflicts import GoldsByQuestion
from ansatz.data.formats import open_rows
from ansatz.data.given_rows import bind_given
from ansatz.data.pair_files import read_pairs
from ansatz.data.row_problems import RowSettings, rows_with_problems, sources_of_files
from ansatz.data.store import read_problems, write_problems
from ansatz.data.unfit import collect_lost, describe_lost
from ansatz.errors import DataError
from ansatz.rewards.signatures import columns
from ansatz.types import Problem

ASKED = {"question": "What is 2 + 3?", "answer": "5"}


def write(folder: Path, rows: list[dict[str, Any]], kind: str = "jsonl") -> Path:
    path = folder / f"rows.{kind}"
    if kind == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pyarrow.parquet = pytest.importorskip("pyarrow.parquet")
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(folder: Path, *rows: dict[str, Any], kind: str = "jsonl", **settings: Any) -> list[Problem]:
    pairs = rows_with_problems(
        open_rows(write(folder, list(rows), kind)), RowSettings(**settings), source="test", split="train"
    )
    return [problem for _, problem in pairs]


def lost(folder: Path, *rows: dict[str, Any], kind: str = "jsonl") -> dict[str, int]:
    with collect_lost() as fields:
        read(folder, *rows, kind=kind)
    return dict(fields)


def chat(**said: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "What is 2 + 3?"}, {"role": "assistant", "content": "\\boxed{5}", **said}]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_text_that_nothing_uses_is_counted_in_every_format(tmp_path: Path, kind: str) -> None:
    rows = [{**ASKED, "context": "Ann has two apples and buys three."}, {**ASKED, "context": ""}]
    assert lost(tmp_path, *rows, kind=kind) == {"context": 1}


def test_labels_and_copies_of_what_is_used_are_not_lost(tmp_path: Path) -> None:
    labels = {"source": "gsm8k train set", "subject": "Counting & Probability", "uuid": "a b c d", "difficulty": 3}
    copies = {"extra_info": {"question": ASKED["question"], "index": 0}, "original": ASKED["question"]}
    assert lost(tmp_path, {**ASKED, **labels, **copies}) == {}


def test_texts_within_objects_lists_and_turns_are_lost_too(tmp_path: Path) -> None:
    row = {"messages": chat(scratchpad="two and three make five"), "extra": {"hint": "count your fingers"}}
    assert lost(tmp_path, row) == {"extra": 1, "messages: scratchpad": 1}
    assert lost(tmp_path, {"messages": chat(weight=1, train=True, name="solver one of two")}) == {}
    history = {"instruction": "Add 1.", "input": "3", "output": "4", "history": [["What is 1 + 1?", "It is 2."]]}
    assert lost(tmp_path, history) == {"history": 1}


@pytest.mark.parametrize("mark", [{"weight": 0}, {"train": False}, {"loss": False}, {"loss_mask": [0, 1]}])
def test_a_mark_of_what_not_to_train_is_lost(tmp_path: Path, mark: dict[str, Any]) -> None:
    (name,) = mark
    assert lost(tmp_path, {"messages": chat(**mark)}, {"messages": chat()}) == {f"messages: {name}": 1}
    assert lost(tmp_path, {**ASKED, **mark}, ASKED) == {name: 1}
    assert lost(tmp_path, {**ASKED, name: 1}, {**ASKED, name: None}) == {}
    assert lost(tmp_path, {**ASKED, name: 1}, {**ASKED, name: "1.0"}, {**ASKED, name: 0}, kind="csv") == {name: 1}


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_every_name_of_a_thought_is_a_thought(tmp_path: Path, name: str) -> None:
    (problem,) = read(tmp_path, {"messages": chat(**{name: "two and three"})})
    assert problem.solution == "<think>\ntwo and three\n</think>\n\n\\boxed{5}"
    assert lost(tmp_path, {"messages": chat(**{name: "hm"})}) == {}
    asked = [{"role": "user", "content": "What is 2 + 3?", name: "a thought of the user"}, chat()[1]]
    assert lost(tmp_path, {"messages": asked}) == {f"messages: {name}": 1}


def test_a_thought_that_is_already_in_the_text_is_not_added_again(tmp_path: Path) -> None:
    text = "<think>\nhm\n</think>\n\n\\boxed{5}"
    (problem,) = read(tmp_path, {"messages": chat(content=text, reasoning="hm")})
    assert problem.solution == text


def test_the_question_of_alpaca_is_its_instruction_and_its_input(tmp_path: Path) -> None:
    rows = [{"instruction": "Give the sum.", "input": text, "output": "2"} for text in ("1 + 1", "")]
    for settings in ({}, {"question_key": "instruction", "answer_key": "output"}):
        first, second = read(tmp_path, *rows, **settings)
        assert (first.question, first.answer, second.question) == ("Give the sum.\n\n1 + 1", "2", "Give the sum.")
        assert "input" not in first.meta
    assert lost(tmp_path, *rows) == {}
    (problem,) = read(tmp_path, rows[0], question_key="input", answer_key="output")
    assert problem.question == "1 + 1"


def test_a_second_part_of_a_question_that_is_no_text_is_written_out_or_refused(tmp_path: Path) -> None:
    (problem,) = read(tmp_path, {"instruction": "Double it.", "input": 21, "output": "42"})
    assert problem.question == "Double it.\n\n21"
    (problem,) = read(tmp_path, {"instruction": "Sort it.", "input": '["b", "a"]', "output": "a, b"}, kind="csv")
    assert problem.question == 'Sort it.\n\n["b", "a"]'
    for row in (
        {"instruction": "Sort it.", "input": ["b", "a"], "output": "a, b"},
        {**ASKED, "system": [{"type": "text", "text": "Be brief."}]},
    ):
        with pytest.raises(DataError, match=r"the field '(input|system)' is \[.*, expected text"):
            read(tmp_path, row)


@pytest.mark.parametrize(
    "part", [{"image": "a.png"}, {"type": None, "image": "a.png"}, {"type": "image", "text": None}, {"video": "a.mp4"}]
)
def test_a_part_of_a_turn_that_is_no_text_is_named_with_or_without_a_type(tmp_path: Path, part: dict[str, Any]) -> None:
    asked = [{"role": "user", "content": [part, {"text": "How many?"}]}, chat()[1]]
    for settings in ({}, {"keep_earlier_turns": False}):
        with pytest.raises(DataError, match=r"contain (image|video), expected only text"):
            read(tmp_path, {"messages": asked}, **settings)
    answered = [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "4"}]}
    ]
    with pytest.raises(DataError, match=r"contain thinking, expected only text"):
        read(tmp_path, {"prompt": "How many?", "completion": answered}, answer_key="completion")
    (problem,) = read(
        tmp_path, {"messages": [{"role": "user", "content": [{"text": "2 + 3?", "image": None}]}, chat()[1]]}
    )
    assert problem.question == "2 + 3?"


def test_nulls_that_a_table_fills_in_are_no_arguments_of_calls(tmp_path: Path) -> None:
    def called(arguments: dict[str, Any]) -> dict[str, Any]:
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]},
            {"role": "tool", "content": "5"},
            {"role": "assistant", "content": "\\boxed{5}"},
        ]
        return {"messages": turns, "tools": [{"function": {"name": "f", "parameters": arguments}}]}

    for problem, name in zip(read(tmp_path, called({"a": 1}), called({"b": 2}), kind="parquet"), "ab", strict=True):
        assert [*problem.response_turns[0]["tool_calls"][0]["function"]["arguments"]] == [name]
        assert [*problem.meta["tools"][0]["function"]["parameters"]] == [name]


def test_files_that_are_read_together_have_sources_of_their_own(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("data/part.00.jsonl", "data/part.01.jsonl.gz", "a/x/t.json", "b/x/t.json")]
    assert [source.rpartition("/")[2] for source in sources_of_files(paths)] == ["part.00", "part.01", "t", "t"]
    assert len(set(sources_of_files(paths))) == 4
    assert sources_of_files(paths[:2]) == ["data/part.00", "data/part.01"]


@pytest.mark.parametrize(
    "row",
    [
        {**ASKED, "image": "a.png"},
        {**ASKED, "images": [{"bytes": "aGk=", "path": None}]},
        {**ASKED, "decoded_image_2": "a.png"},
        {**ASKED, "scan": {"bytes": "aGk=", "path": None}},
        {**ASKED, "videos": ["a.mp4"]},
        {**ASKED, "question": "<image>\nHow many?"},
        {**ASKED, "question": "<|image_1|> How many?"},
        {"messages": [{"role": "user", "content": "How many?", "images": ["a.png"]}, chat()[1]]},
    ],
)
def test_a_row_with_a_picture_a_film_or_sound_cannot_be_used(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"line 1: .* expected only text"):
        read(tmp_path, row)


def test_empty_fields_of_pictures_and_numbers_of_them_are_fine(tmp_path: Path) -> None:
    none = {"image": None, "images": [], "audio": "", "num_images": 0, "has_image": False}
    assert (
        len(read(tmp_path, {**ASKED, **none}, {**ASKED, "question": "What does `<image>` mean in SVG, in short?"})) == 2
    )


def test_pairs_name_what_they_do_not_use(tmp_path: Path) -> None:
    row = {"prompt": "What is 2 + 3?", "chosen": "5", "rejected": "6", "critique": "the second one is wrong"}
    given = bind_given({"source": "file", "path": str(write(tmp_path, [row]))}, key="pairs")
    with collect_lost() as fields:
        read_pairs(given)
    assert describe_lost(fields, total=1) == "nothing uses the field 'critique' (1 of 1 rows)"


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "gold", ['["a", "o"]', '{"name": "add", "arguments": {"a": 1}}', "['a', 'b']", '[{"name": "f"}]']
)
def test_a_gold_answer_that_is_text_stays_text(tmp_path: Path, gold: str, kind: str) -> None:
    (problem,) = read(tmp_path, {"question": "Which?", "answer": gold}, kind=kind)
    write_problems(tmp_path / "stored.jsonl", [problem])
    for each in (
        problem,
        *read_problems(tmp_path / "stored.jsonl"),
        *read(tmp_path, json.loads((tmp_path / "stored.jsonl").read_text())),
    ):
        assert each.answers == (gold,)
        assert columns(each)["ground_truth"] == gold


def test_a_list_is_several_gold_answers_and_an_object_is_one(tmp_path: Path) -> None:
    call = {"name": "add", "arguments": {"a": 1}}
    rows = [{"question": str(n), "answer": gold} for n, gold in enumerate((["1/2", "0.5"], call, [call, call]))]
    assert [each.answers for each in read(tmp_path, *rows)] == [
        ("1/2", "0.5"),
        (json.dumps(call),),
        (json.dumps([call, call]),),
    ]
    (problem,) = read(tmp_path, {"question": "Half?", "answer": '["1/2", "0.5"]'}, kind="csv")
    assert problem.answers == ("1/2", "0.5")


def test_questions_and_solutions_that_are_json_stay_text(tmp_path: Path) -> None:
    row = {"question": '{"a": 1, "b": 2}', "answer": "3", "solution": '["x", "y"]'}
    (problem,) = read(tmp_path, row)
    assert (problem.question, problem.solution) == (row["question"], row["solution"])


def test_equal_questions_with_different_gold_answers_are_found() -> None:
    def problem(id_: str, answer: str, **meta: Any) -> Problem:
        return Problem(id=id_, question="q?", answers=(answer,), source="test", split="train", meta=meta)

    golds = GoldsByQuestion(lambda left, right: {left, right} == {"1/2", "0.5"})
    turns = [{"role": "system", "content": "In base 8."}]
    for each in (problem("a", "1/2"), problem("b", "0.5"), problem("c", "7", earlier_turns=turns), problem("d", "")):
        golds.add(each)
    assert golds.sentence() == ""
    golds.add(problem("e", "7"))
    assert golds.sentence() == (
        "1 problem has the question of an earlier one and a different gold answer: 'a' has '1/2' and 'e' has '7'"
    )
