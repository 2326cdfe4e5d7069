"""Existing responses: graded by `ansatz score`, chosen by `ansatz data select`, and read as demonstrations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from tiny_models import tiny_folder

from ansatz.data.jsonl import jsonl

ASKED, RIGHT, WRONG = "What is $1+1$?", "So \\boxed{2}.", "So \\boxed{3}."
SYSTEM = {"role": "system", "content": "Be brief."}


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


SHAPES: dict[str, tuple[dict[str, Any], list[bool]]] = {  # row, verdicts in order
    "one response": ({"question": ASKED, "answer": "2", "response": RIGHT}, [True]),
    "OpenR1-Math": (
        {"problem": ASKED, "solution": "It is 2.", "answer": "2", "uuid": "u", "generations": [WRONG, RIGHT]},
        [False, True],
    ),
    "messages with a gold answer": (
        {
            "messages": [SYSTEM, {"role": "user", "content": ASKED}, {"role": "assistant", "content": RIGHT}],
            "answer": "2",
        },
        [True],
    ),
    "GSM8K's gold": ({"question": ASKED, "answer": "1+1=2\n#### 2", "completion": WRONG}, [False]),
    "TRL completions": (
        {
            "prompt": [{"role": "user", "content": ASKED}],
            "ground_truth": "2",
            "completions": [[{"role": "assistant", "content": text}] for text in (RIGHT, WRONG)],
        },
        [True, False],
    ),
    "verl": ({"prompt": ASKED, "reward_model": {"ground_truth": "2"}, "Responses": [RIGHT]}, [True]),
    "NuminaMath with traces": ({"problem": ASKED, "solution": RIGHT, "generation": WRONG}, [False]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_traces_of_published_shapes_are_verified_and_taught_without_naming_fields(ansatz, tmp_path, shape):
    row, verdicts = SHAPES[shape]
    file = written(tmp_path / "traces.jsonl", row)
    code, said, err = ansatz("score", file)
    assert (code, err) == (0, "")
    scored = tmp_path / "traces.scored.jsonl"
    assert [row["verdict"]["correct"] for row in lines(scored)] == verdicts
    assert {row["verdict"]["gold"] for row in lines(scored)} == {"2"}
    code, said, err = ansatz("data", "select", scored, "--out", tmp_path / "taught.jsonl")
    assert (code, err) == (0, "")
    assert f"{len(verdicts)} responses, {sum(verdicts)} kept" in said
    taught = list(jsonl(split="train", path=str(tmp_path / "taught.jsonl")))
    assert [(problem.question, problem.answer, problem.solution) for problem in taught] == [(ASKED, "2", RIGHT)] * sum(
        verdicts
    )
    assert all((problem.earlier_turns == [SYSTEM]) == ("messages" in row) for problem in taught)


def test_several_gold_answers_stay_several(ansatz, tmp_path):
    golds, scored, taught = ["1/2", "0.5", "half"], tmp_path / "t.scored.jsonl", tmp_path / "taught.jsonl"
    row = {"question": "What is $1/2$?", "answer": golds, "response": "So \\boxed{0.5}."}
    assert ansatz("score", written(tmp_path / "t.jsonl", row))[0] == 0
    assert [row["verdict"]["gold"] for row in lines(scored)] == [golds]
    assert ansatz("data", "select", scored, "--out", taught)[0] == 0
    assert [problem.answers for problem in jsonl(split="train", path=str(taught))] == [tuple(golds)]


def test_the_tools_of_a_trace_are_taught_with_it(ansatz, tmp_path):
    tools, taught = [{"type": "function", "function": {"name": "add"}}], tmp_path / "taught.jsonl"
    row = {"question": ASKED, "answer": "2", "response": RIGHT, "tools": tools, "data_source": "mine"}
    assert ansatz("score", written(tmp_path / "t.jsonl", row))[0] == 0
    assert ansatz("data", "select", tmp_path / "t.scored.jsonl", "--out", taught)[0] == 0
    (problem,) = jsonl(split="train", path=str(taught))
    assert (problem.tools, problem.origin) == (tools, "mine")


def test_responses_in_several_fields_and_files_are_all_graded(ansatz, tmp_path):
    row = {"question": ASKED, "final_answer": "2", "r1_solution_1": RIGHT, "r1_solution_2": WRONG}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "b.parquet")
    files = written(tmp_path / "a.jsonl", row), tmp_path / "b.parquet"
    keys = ("--response-key", "r1_solution_1", "--response-key", "r1_solution_2")
    code, said, _ = ansatz("score", *files, *keys, "--out", tmp_path / "out.jsonl")
    assert code == 0
    assert "4 responses, 2 correct" in said
    code, said, _ = ansatz("data", "select", tmp_path / "out.jsonl", "--out", tmp_path / "taught.jsonl")
    assert "4 responses, 1 kept, 3 dropped (repeated 1, wrong 2)" in said
    assert "1 of 1 problems" in said


def test_a_gold_answer_that_is_read_from_the_response_itself_is_refused(ansatz, tmp_path):
    chat = {"messages": [{"role": "user", "content": ASKED}, {"role": "assistant", "content": WRONG}]}
    for row in (chat, {"query": ASKED, "response": "The answer is: 3"}):
        code, _, err = ansatz("score", written(tmp_path / "t.jsonl", row))
        assert code == 2
        assert "would be both the response and the gold answer" in err


def test_lengths_of_traces_are_counted_by_a_tokenizer_or_refused(ansatz, tmp_path):
    rows = [{"question": ASKED, "answer": "2", "response": f"{'t5 ' * n}\\boxed{{2}}"} for n in (9, 3)]
    assert ansatz("score", written(tmp_path / "t.jsonl", *rows))[0] == 0
    verb = ("data", "select", tmp_path / "t.scored.jsonl", "--out", tmp_path / "o.jsonl", "--per-prompt", 1)
    for option in (("--pick", "shortest"), ("--drop-longer-than", 6)):
        code, _, err = ansatz(*verb, *option)
        assert code == 2
        assert "their lengths are unknown" in err
        assert ansatz(*verb, *option, "--tokenizer", tiny_folder(tmp_path / "model"))[0] == 0
        assert [(row["tokens"], row["solution"].count("t5")) for row in lines(tmp_path / "o.jsonl")] == [(5, 3)]


def test_a_trace_that_was_cut_off_is_not_taught(ansatz, tmp_path):
    row = {"question": ASKED, "answer": "2", "response": RIGHT, "finish_reason": "length"}
    assert ansatz("score", written(tmp_path / "t.jsonl", row))[0] == 0
    said = ansatz("data", "select", tmp_path / "t.scored.jsonl", "--out", tmp_path / "o.jsonl")[1]
    assert "(cut_off 1)" in said


def test_a_file_without_verdicts_is_sent_to_score(ansatz, tmp_path):
    file = written(tmp_path / "t.jsonl", {"question": ASKED, "answer": "2", "response": RIGHT})
    code, _, err = ansatz("data", "select", file, "--out", tmp_path / "o.jsonl")
    assert code == 2
    assert f"Grade its responses first: ansatz score {file}" in " ".join(err.split())
