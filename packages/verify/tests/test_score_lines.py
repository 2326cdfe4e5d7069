"""Files of responses, whoever wrote them, and the commands of the package."""

import io
import json
import sys

import pytest
from ansatz_verify.__main__ import main
from ansatz_verify.score import Lines


def verdicts(*rows, **settings):
    lines = Lines(**settings)
    graded = list(lines.graded("f", [json.dumps(row) for row in rows]))
    return [row["verdict"]["correct"] for row in graded], lines


@pytest.mark.parametrize(
    "row",
    [
        {"answer": "5", "response": r"\boxed{5}"},
        {"Gold": 5, "Prediction": r"\boxed{5}"},
        {"reward_model": {"ground_truth": "5"}, "output": r"\boxed{5}"},
        {"answer": "2 + 3 = 5\n#### 5", "completion": [{"role": "assistant", "content": r"\boxed{5}"}]},
        {"solution": r"\boxed{5}", "messages": [{"from": "human"}, {"from": "gpt", "value": r"\boxed{5}"}]},
        {"answer": ["4", "5"], "generations": [r"\boxed{5}"]},
    ],
)  # fmt: skip
def test_the_fields_of_other_projects_are_recognised(row):
    correct, lines = verdicts(row)
    assert (correct, lines.problems) == ([True], {})


def test_a_list_of_responses_and_several_fields_become_several_rows():
    row = {"answer": "5", "a": [r"\boxed{5}", r"\boxed{6}"], "b": r"\boxed{5}"}
    assert verdicts(row, response_keys=["a", "b"])[0] == [True, False, True]


def test_lines_that_cannot_be_graded_are_counted_and_named_once():
    lines = Lines()
    given = [b'{"answer": "5"}', b"\n", b"{", b"\xff", b"[1]", b'{"response": "5"}', b'{"answer": "2"}']
    given += [b'{"answer": {"a": 1}, "response": "5"}', b'{"answer": "$\\\\frac{1}{$", "response": "5"}', b"[" * 9999]
    assert [row["verdict"]["correct"] for row in lines.graded("f", given)] == [False]
    summary = "\n".join(lines.summary())
    assert "1 responses, 0 correct" in summary
    assert "3 lines have no JSON; the first is f line 3." in summary
    assert "1 line has no JSON object; the first is f line 5." in summary
    assert "2 lines have no response (name its field with --response-key); the first is f line 1" in summary
    assert (
        "1 line has no gold answer (name its field with --gold-key); the first is f line 6, its fields are" in summary
    )
    assert "1 line has no gold answer that can be read (the gold answer is {'a': 1}" in summary
    assert "1 line has a gold answer that only equals the same text" in summary


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["1/2", "0.5"], 0, "right reason=equal stage=number"),
        (["5", "-5"], 1, "wrong reason=different"),
        (["-x", "-x"], 0, "right reason=equal"),
        (["-h^2", "-h^2"], 0, "right reason=equal"),
        (["-\\frac12", "-0.5"], 0, "right reason=equal"),
        (["5", "The answer is 5.", "--mode", "anchored"], 0, "right reason=equal stage=string read='5'"),
        (["5", "The answer is 5.", "--mode", "strict"], 1, "wrong reason=no_answer stage=extract read=None"),
        (["--", "score", "score"], 0, "right reason=equal"),
    ],
)
def test_the_command_says_verdict_reason_and_stage(given, code, said, capsys):
    assert main(given) == code
    assert capsys.readouterr().out.startswith(said)


def test_score_reads_standard_input_and_writes_rows(monkeypatch, capsys):
    line = json.dumps({"answer": "5", "response": r"\boxed{5}", "id": 7}).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line + b"\n{}\n")))
    assert main(["score", "-"]) == 0
    said = capsys.readouterr()
    row = json.loads(said.out)
    assert (row["id"], row["verdict"]["reason"], row["verdict"]["stage"]) == (7, "equal", "string")
    assert "the first is standard input line 2" in said.err


@pytest.mark.parametrize("out", ["rows.jsonl", "./rows.jsonl", "link.jsonl"])
def test_a_file_that_is_read_is_not_written(out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (tmp_path / "link.jsonl").symlink_to("rows.jsonl")
    with pytest.raises(SystemExit, match="2"):
        main(["score", "rows.jsonl", "--out", out])
    assert "is a file that is read" in capsys.readouterr().err
    assert (tmp_path / "rows.jsonl").read_text() == "{}\n"


def test_rows_replace_those_of_an_earlier_run_only_when_all_are_written(tmp_path, monkeypatch):
    read, out = tmp_path / "responses.jsonl", tmp_path / "rows.jsonl"
    read.write_text(json.dumps({"answer": "5", "response": r"\boxed{5}"}) + "\n")
    assert main(["score", str(read), "--out", str(out)]) == 0
    rows = out.read_text()
    assert json.loads(rows)["verdict"]["correct"] is True
    out.chmod(0o640)
    assert main(["score", str(read), "--out", str(out)]) == 0
    assert out.stat().st_mode & 0o777 == 0o640
    rows = out.read_text()

    def fail(lines, name, file):
        yield {}
        raise OSError("cannot be read to its end")

    monkeypatch.setattr(Lines, "graded", fail)
    with pytest.raises(SystemExit, match="2"):
        main(["score", str(read), "--out", str(out)])
    assert out.read_text() == rows
    assert sorted(tmp_path.iterdir()) == [read, out]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["score", "none.jsonl"], "none.jsonl"),
        (["score", __file__, "--out", "no_folder/rows.jsonl"], "'no_folder/rows.jsonl'"),
        (["check", "grade"], "expected MODULE:FUNCTION"),
        (["check", "no_such_module:f"], "cannot be loaded: ModuleNotFoundError"),
        (["check", "math:pi"], "expected a function"),
    ],
)
def test_bad_input_gets_one_sentence(given, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(given)
    assert said in capsys.readouterr().err.splitlines()[-1]
