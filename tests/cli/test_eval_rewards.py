"""`ansatz eval` with the rewards that grade what the verifier cannot: a judge, programs, tests of code, Countdown."""

from __future__ import annotations

import json

import pytest
import yaml
from fake_sampler import FakeSampler

from ansatz.rollout import engines
from tests.rewards.chat_server import ChatServer

HOW = ("--threads", 1, "--samples-per-prompt", 2, "--max-response-tokens", 200)


@pytest.fixture
def evaluate(ansatz, model, tmp_path, monkeypatch):
    """(rows, responses, rewards) -> the scores. responses: the texts of the two samples of every problem."""

    def run(rows, responses, rewards):
        sampler = FakeSampler(lambda prompt, sample: responses[sample])
        monkeypatch.setattr(engines, "engine_of", lambda settings: lambda policy: sampler)
        (tmp_path / "suite.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "rewards.yaml").write_text(yaml.safe_dump({"rewards": rewards}))
        arguments = ("--suite", tmp_path / "suite.jsonl", "--rewards", tmp_path / "rewards.yaml")
        code, _, err = ansatz("eval", model, *arguments, *HOW, "--out", tmp_path / "out")
        assert (code, err) == (0, "")
        return json.loads((tmp_path / "out" / "results.json").read_text())["scores"]["reward"]

    return run


def says(request):
    """A judge that takes what is divisible by two for even."""
    candidate = json.loads(request["messages"][-1]["content"].rpartition("\n")[2])
    return "CORRECT" if candidate == "divisible by two" else "INCORRECT"


def test_a_judge_decides_about_answers_in_words(evaluate):
    rows = [{"question": "Is 4 even or odd?", "answer": "even"}]
    with ChatServer(says) as server:
        scores = evaluate(
            rows, ["It is \\boxed{divisible by two}.", "\\boxed{odd}"], {"judge": {"url": server.url, "model": "m"}}
        )
        assert len(server.requests) == 3  # the first one asks whether the judge answers at all
    assert (scores["pass@1"], scores["verdicts"]["equal"], scores["verdicts"]["different"]) == (0.5, 0.5, 0.5)


def test_programs_are_run_and_their_output_is_compared(evaluate):
    rows = [{"question": "What is 6 times 7?", "answer": "42"}, {"question": "What is 6 plus 7?", "answer": "13"}]
    scores = evaluate(rows, ["```python\nprint(6 * 7)\n```", "```python\nprint(6 *\n```"], {"program": {}})
    assert (scores["pass@1"], scores["verdicts"]["unparsed"]) == (0.25, 0.5)


def test_tests_of_code_are_run(evaluate):
    rows = [{"question": "Write f.", "answer": "f", "tests": ["assert f(2) == 4", "assert f(3) == 9"]}]
    squares, doubles = ("```python\ndef f(x):\n    return " + body + "\n```" for body in ("x * x", "2 * x"))
    assert evaluate(rows, [squares, doubles], {"code_tests": {}})["pass@1"] == 0.5


def test_any_expression_that_reaches_the_target_of_countdown_is_correct(evaluate):
    rows = [{"nums": [44, 19, 35], "target": 98}]
    right, wrong = "<answer>35 + 44 + 19</answer>", "<answer>44 + 19</answer>"
    assert evaluate(rows, [right, wrong], {"countdown": {}})["pass@1"] == 0.5
