"""`ansatz sample`, `data select`, `data difficulty` and the filter of guesses, on a model from nothing."""

from __future__ import annotations

import json

import pytest

from ansatz.data.base import load_problems
from ansatz.evaluate import responses as guess_module
from ansatz.evaluate import responses as responses_module
from ansatz.types import Reason, Verdict

HOW = ("--template", "tiny", "--threads", 1, "--batch", 2)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"question": f"Ann has {n} pens and {n} cups. How many?", "answer": str(2 * n), "n": n} for n in range(3)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def right(monkeypatch):
    """The verifier says that the first responses with distinct texts are right: as many as the gold answer says."""
    seen = {}

    def verify(gold, text, **_):
        texts = seen.setdefault(gold, [])
        if text not in texts:
            texts.append(text)
        correct = texts.index(text) < int(gold)
        return Verdict(correct=correct, reason=Reason.EQUAL if correct else Reason.DIFFERENT, extracted=text)

    for module in (responses_module, guess_module):
        monkeypatch.setattr(module, "verify", verify)


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def report_of(path):
    return json.loads(path.with_suffix(".report.json").read_text())


def test_two_parts_of_a_file_are_sampled_into_two_folders(ansatz, model, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in ("rows.00.jsonl", "rows.01.jsonl"):
        file.with_name(part).write_bytes(file.read_bytes())
        code, out, _ = ansatz(
            "sample", model, "--data", part, "--samples-per-prompt", 1, "--max-response-tokens", 2, *HOW
        )
        assert (code, f"samples/tiny/{part.removesuffix('.jsonl')}/rollouts.jsonl" in out) == (0, True)


def test_sample_keeps_responses_and_verdicts_and_select_chooses_from_them(ansatz, model, file, right, tmp_path):
    out = tmp_path / "kept"
    arguments = (
        "sample",
        model,
        "--data",
        file,
        "--samples-per-prompt",
        5,
        "--max-response-tokens",
        12,
        *HOW,
        "--out",
        out,
    )
    code, out_text, err = ansatz(*arguments)
    assert (code, err) == (0, "")
    assert "15 responses to 3 problems" in out_text
    assert "strict: 40.0 % correct, 66.7 % of problems correct at least once" in out_text  # 0 + 2 + 4 of 15
    rows = read(out / "rollouts.jsonl")
    assert [row["sample"] for row in rows] == [0, 1, 2, 3, 4] * 3
    assert [set(row["verdicts"]) for row in rows] == [{"strict", "anchored", "last_number"}] * 15
    before = (out / "rollouts.jsonl").read_bytes()
    assert ansatz(*arguments)[0] == 0
    assert (out / "rollouts.jsonl").read_bytes() == before

    taught = tmp_path / "sft.jsonl"
    code, out_text, _ = ansatz("data", "select", out, "--out", taught, "--per-prompt", 2)
    assert code == 0
    report = report_of(taught)
    cut = sum(row["finish"] == "length" and row["verdicts"]["strict"]["correct"] for row in rows)
    assert report["kinds"]["wrong"] == 9
    assert report["kinds"].get("cut_off", 0) == cut
    assert report["kept"] + report["dropped"] == 15
    assert f"15 responses, {report['kept']} kept" in out_text
    assert len(read(taught)) == report["kept"]


def test_what_is_selected_is_read_as_a_source_of_demonstrations(ansatz, tmp_path):
    row = {"id": "a", "sample": 0, "level": "2", "subject": "", "question": "1 + 1?", "answer": "2", "tokens": 9}
    row |= {"response": "so \\boxed{2}", "finish": "stop"}
    row["verdicts"] = {"reward": {"correct": True, "reason": "equal", "extracted": "2"}}
    rows = [row, {**row, "sample": 1, "response": "1+1 = \\boxed{2}", "tokens": 12}]
    kept, out = tmp_path / "rollouts.jsonl", tmp_path / "sft.jsonl"
    kept.write_text("\n".join(map(json.dumps, rows)) + "\n")
    code, out_text, _ = ansatz("data", "select", kept, "--out", out, "--per-prompt", 1, "--pick", "shortest")
    assert code == 0
    assert "2 responses, 1 kept, 1 dropped (over 1)" in out_text
    (problem,) = load_problems("jsonl", split="train", settings={"path": str(out)})
    assert (problem.question, problem.answer, problem.solution) == ("1 + 1?", "2", "so \\boxed{2}")
    assert problem.level == "2"


def test_difficulty_writes_the_pass_rate_to_each_row(ansatz, model, file, right, tmp_path):
    out = tmp_path / "rated.jsonl"
    verb = (
        "data",
        "difficulty",
        file,
        "--out",
        out,
        "--model",
        model,
        "--samples-per-prompt",
        5,
        "--max-response-tokens",
        12,
        *HOW,
    )
    code, out_text, _ = ansatz(*verb)
    assert code == 0
    assert "3 rows, 3 kept, 0 dropped" in out_text
    assert read(out) == [{**row, "pass_rate": rate} for row, rate in zip(read(file), (0.0, 0.4, 0.8), strict=True)]
    report = report_of(out)
    assert (report["file"], report["before"], report["dropped_rows"]) == (str(file), [], [])
    assert report["correct_of_k"] == {"0": 1, "2": 1, "4": 1}
    assert (report["samples_per_prompt"], report["model"], len(report["model_sha256"])) == (5, str(model), 64)
    assert len(read(tmp_path / "rated.responses" / "rollouts.jsonl")) == 15
    assert "1 kept" in ansatz(*verb, "--min-rate", 0.1, "--max-rate", 0.5)[1]
    assert [row["n"] for row in read(out)] == [1]


def test_responses_to_other_problems_are_not_used_again(ansatz, model, file, tmp_path):
    verb = ("data", "difficulty", file, "--out", tmp_path / "rated.jsonl", "--model", model, *HOW)
    verb += ("--samples-per-prompt", 1, "--max-response-tokens", 4)
    assert ansatz(*verb)[0] == 0
    assert ansatz(*verb)[0] == 0
    file.write_text(file.read_text().replace('"answer": "2"', '"answer": "3"'))
    code, _, err = ansatz(*verb)
    assert code == 2
    assert "holds responses with data_sha256 = " in err
    assert "Choose another folder (--work DIR)" in err


def test_at_temperature_0_the_default_is_one_response_per_problem(ansatz, model, file, tmp_path):
    out = tmp_path / "greedy"
    arguments = ("--temperature", 0, "--max-response-tokens", 4, *HOW, "--out", out)
    code, out_text, err = ansatz("sample", model, "--data", file, *arguments)
    assert (code, err) == (0, "")
    assert "--temperature 0: one response per problem is sampled" in out_text
    assert [row["sample"] for row in read(out / "rollouts.jsonl")] == [0, 0, 0]


def test_what_a_model_guesses_right_is_dropped(ansatz, model, file, right, tmp_path):
    out = tmp_path / "kept.jsonl"
    verb = ("data", "filter", file, "--out", out, "--threads", 1, "--samples-per-prompt", 3, "--model", model)
    code, out_text, _ = ansatz(*verb, "--drop", "guessed")
    assert code == 0
    assert "3 rows, 1 kept, 2 dropped (guessed 2)" in out_text
    assert [row["n"] for row in read(out)] == [0]
    assert [row["correct"] for row in report_of(out)["dropped_rows"]] == [2, 3]
    rows = read(tmp_path / "kept.responses" / "rollouts.jsonl")
    assert len(rows) == 9
    assert all(row["response"].startswith("\\boxed{") and set(row["verdicts"]) == {"guess"} for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sample", "MODEL", "--data", "nowhere.jsonl"), "problem file 'nowhere.jsonl' does not exist"),
        (
            ("sample", "MODEL", "--data", "FILE", "--temperature", 0, "--samples-per-prompt", 2),
            "every response would be the same",
        ),
        (("sample", "MODEL", "--data", "FILE", "--id-key", "same"), "two problems have the id '1'"),
        (("sample", "OUT", "--data", "FILE", *HOW), "Give a Hugging Face model folder"),
        (
            ("data", "select", "FILE", "--out", "OUT"),
            "has no verdicts. Grade its responses first: ansatz score",
        ),
        (("data", "select", "OUT", "--out", "OUT"), "expected a folder of `ansatz sample`"),
        (("data", "select", "FILE", "--out", "OUT", "--pick", "longest"), "pick = 'longest' is unknown"),
        (("data", "select", "FILE", "--out", "OUT", "--per-prompt", 0), "per_prompt = 0, expected at least 1"),
        (("data", "select", "FILE", "--out", "OUT", "--shape", "bowed"), "Did you mean 'boxed'"),
        (("data", "select", "FILE", "--out", "OUT", "--language", "xx"), "the language 'xx' is unknown"),
        (
            ("data", "difficulty", "FILE", "--out", "OUT", "--model", "MODEL", "--min-rate", 0.6, "--max-rate", 0.5),
            "expected 0 <= min <= max <= 1",
        ),
        (("data", "filter", "FILE", "--out", "OUT", "--drop", "guessed"), "--drop guessed and --model belong together"),
        (
            ("data", "filter", "FILE", "--out", "OUT", "--drop", "proof", "--model", "MODEL"),
            "--drop guessed and --model belong together",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_file(ansatz, model, file, tmp_path, arguments, message):
    file.write_text("".join(json.dumps({**row, "same": 1}) + "\n" for row in read(file)))
    places = {"FILE": file, "OUT": tmp_path / "out.jsonl", "MODEL": model}
    code, _, complaint = ansatz(*(places.get(argument, argument) for argument in arguments))
    assert code == 2
    assert message in complaint
    assert complaint.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]
