from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ansatz_verify.pool import WorkerPool
from toy_runs import REPOSITORY

from ansatz.cli.score import default_out, score_file
from ansatz.errors import ConfigError, DataError


def test_each_row_gets_its_verdict_and_the_reasons_are_counted(tmp_path: Path):
    file, out = tmp_path / "saved.jsonl", tmp_path / "scored.jsonl"
    rows = [{"id": n, "gold": "5", "text": text} for n, text in enumerate([r"\boxed{5}", r"\boxed{6}", "so"])]
    file.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    counts = score_file([file], out, gold_key="gold", response_keys=["text"])
    assert counts == {"equal": 1, "different": 1, "no_answer": 1}
    scored = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in scored] == [0, 1, 2]
    assert [row["verdict"]["correct"] for row in scored] == [True, False, False]
    assert scored[1]["verdict"]["extracted"] == "6"


@pytest.mark.parametrize(
    ("text", "message"),
    [('{"answer": "5"}', "no field 'response'"), ("{", "not valid JSON"), ("[1]", "expected a JSON object")],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, text: str, message: str):
    file = tmp_path / "saved.jsonl"
    file.write_text(text + "\n")
    with pytest.raises(DataError, match=rf"saved.jsonl line 1: .*{message}"):
        score_file([file], tmp_path / "out", gold_key="answer", response_keys=["response"])


def test_an_unknown_mode_and_a_missing_file_are_said(tmp_path: Path):
    with pytest.raises(ConfigError, match="strict, anchored or last_number"):
        score_file([tmp_path / "x"], tmp_path / "o", mode="loose")
    with pytest.raises(DataError, match="does not exist"):
        score_file([tmp_path / "x"], tmp_path / "o")


def test_the_worker_for_algebra_starts_before_the_first_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    waits: list[bool] = []
    monkeypatch.setattr(WorkerPool, "start", lambda _, *, wait=True: waits.append(wait))
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"answer": "5", "response": "\\\\boxed{5}"}\n')
    score_file([rows], tmp_path / "out.jsonl")
    assert waits == [False]


def test_standard_input_is_scored_to_standard_output_and_a_file_says_where_its_rows_are(tmp_path: Path):
    lines = "".join(json.dumps({"gold": 5, "text": text}) + "\n" for text in (r"\boxed{5}", "so"))
    command = [sys.executable, "-m", "ansatz", "score", "-", "--answer-key", "gold", "--response-key", "text"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert [json.loads(line)["verdict"]["correct"] for line in done.stdout.splitlines()] == [True, False]
    assert "no_answer" in done.stderr


def test_files_whose_names_begin_alike_have_results_of_their_own():
    names = ["Qwen2.5-0.5B.jsonl", "Qwen2.5-7B.jsonl.gz", "plain.csv"]
    assert [default_out([Path("a", name)]).name for name in names] == [
        "Qwen2.5-0.5B.scored.jsonl", "Qwen2.5-7B.scored.jsonl", "plain.scored.jsonl",
    ]  # fmt: skip


def test_the_default_place_of_the_rows_is_printed(ansatz, tmp_path: Path):
    (tmp_path / "saved.jsonl").write_text('{"answer": "5", "response": "5"}\n')
    code, out, _ = ansatz("score", tmp_path / "saved.jsonl")
    assert code == 0
    assert f"Rows with their verdicts: {tmp_path / 'saved.scored.jsonl'}" in out
    assert (tmp_path / "saved.scored.jsonl").is_file()
