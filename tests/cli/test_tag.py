"""`ansatz data tag`."""

from __future__ import annotations

import json

import pytest

from ansatz.data.base import load_problems
from ansatz.data.hygiene.topics import topics_of
from ansatz.types import Problem

QUESTIONS = {
    "geometry": "In triangle $ABC$, $AB = 5$ and $\\angle B = 90^\\circ$. Find the radius of its incircle.",
    "number_theory": "What is the remainder when $7^{100}$ is divided by 13?",
    "counting_and_probability": "Two cards are drawn at random. What is the probability that both are red?",
    "algebra": "Solve the equation $x^2 - 5x + 6 = 0$.",
    "linear_algebra": "Find the determinant of the matrix $\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}$.",
    "calculus": "Evaluate $\\int_0^1 x^2 \\, dx$.",
    "arithmetic": "Tom has 3 dollars and spends 1 dollar each day. How many days does his money last?",
    "other": "Lorem ipsum dolor sit amet.",
}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_rules_give_every_row_a_topic_that_a_mixture_can_use(ansatz, tmp_path):
    rows = [{"question": question, "answer": "1", "topic of mine": name} for name, question in QUESTIONS.items()]
    out = tmp_path / "tagged.jsonl"
    code, said, err = ansatz("data", "tag", write(tmp_path / "rows.jsonl", rows), "--out", out)
    assert (code, err) == (0, "")
    assert f"{len(rows)} rows: " in said
    tagged = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["topic"] for row in tagged] == list(QUESTIONS)
    assert all(row["topic"] == row["topics"][0] for row in tagged)
    assert [{key: row[key] for key in rows[0]} for row in tagged] == rows
    report = json.loads((tmp_path / "tagged.report.json").read_text())
    assert report["topics"] == dict.fromkeys(QUESTIONS, 1)
    parts = [{"source": "jsonl", "path": str(out)}]
    settings = {"parts": parts, "topics": {"geometry": 1, "algebra": 1}}
    assert len(load_problems("mixture", split="train", settings=settings)) == 2


def test_a_classifier_of_the_user_decides(ansatz, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def kind(problem):\n    return ['long'] if len(problem.question) > 9 else 'short'\n"
    )
    rows = write(tmp_path / "rows.jsonl", [{"question": "a" * n, "answer": "1"} for n in (5, 15)])
    out = tmp_path / "o.jsonl"
    verb = ("data", "tag", rows, "--out", out, "--field", "kind")
    assert ansatz(*verb, "--classifier", f"{tmp_path}/mine.py:kind")[0] == 0
    tagged = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["kind"], row["kinds"]) for row in tagged] == [("short", ["short"]), ("long", ["long"])]


@pytest.mark.parametrize(
    ("body", "message"),
    [("return 5", "returned 5 for problem"), ("return []", "expected a topic"), ("return 1 / 0", "ZeroDivisionError")],
)
def test_a_classifier_that_fails_is_named(ansatz, tmp_path, body, message):
    (tmp_path / "mine.py").write_text(f"def kind(problem):\n    {body}\n")
    rows = write(tmp_path / "rows.jsonl", [{"question": "a", "answer": "1"}])
    code, _, err = ansatz(
        "data", "tag", rows, "--out", tmp_path / "o.jsonl", "--classifier", f"{tmp_path}/mine.py:kind"
    )
    assert code == 2
    assert message in err
    assert not (tmp_path / "o.jsonl").exists()


def test_a_field_that_is_there_already_is_not_overwritten(ansatz, tmp_path):
    rows = write(tmp_path / "rows.jsonl", [{"question": "a", "answer": "1", "topic": "mine"}])
    code, _, err = ansatz("data", "tag", rows, "--out", tmp_path / "o.jsonl")
    assert code == 2
    assert "already has a field 'topic'" in err


def test_topics_are_ordered_by_their_evidence_and_arithmetic_comes_last():
    text = "A triangle has how many dollars each? Its circle and its triangle are drawn at random."
    problem = Problem(id="p", question=text, answers=("1",), source="s", split="all")
    assert topics_of(problem) == ["geometry", "counting_and_probability", "arithmetic"]
