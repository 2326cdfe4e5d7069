"""The form of a response, by our own phenomena and by the projects' own tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansatz.errors import ConfigError
from ansatz.rewards.format import format, well_formed
from ansatz.rewards.grader import build_grader

CASES = Path(__file__).parents[3] / "shared" / "verifier" / "cases"

THOUGHT_AND_TAG = "<think>\nhm\n</think>\n<answer>\n7\n</answer>"
THOUGHT_AND_BOX = r"<think>hm</think> So it is \boxed{7}."


def test_the_cases_of_other_projects_all_come_out_as_they_have_them():
    if not CASES.is_dir():
        pytest.skip("the shared verifier cases are not beside this checkout")
    rows = [json.loads(line) for file in sorted(CASES.glob("*.jsonl")) for line in file.read_text().splitlines()]
    rows = [row for row in rows if row["kind"] == "format"]
    assert rows
    assert [row["id"] for row in rows if well_formed(row["prediction"]) != row["expected"]] == []


@pytest.mark.parametrize(
    ("text", "shape", "strict", "loose"),
    [
        (THOUGHT_AND_TAG, "think", True, True),
        (THOUGHT_AND_TAG, "think_answer", True, True),
        (THOUGHT_AND_TAG, "think_boxed", False, False),
        (THOUGHT_AND_BOX, "think", True, True),
        (THOUGHT_AND_BOX, "think_boxed", True, True),
        (THOUGHT_AND_BOX, "think_answer", False, False),
        ("<think></think>7", "think", True, True),
        (f"Sure. {THOUGHT_AND_TAG}", "think_answer", False, True),
        (f"{THOUGHT_AND_TAG} Bye.", "think_answer", False, True),
        (f"{THOUGHT_AND_TAG}{THOUGHT_AND_TAG}", "think_answer", False, True),
        ("<think>a</think> so <answer>7</answer>", "think_answer", False, True),
        ("<think>a <answer>7</answer></think><answer>7</answer>", "think_answer", False, True),
        ("<answer>7</answer><think>a</think>", "think_answer", False, False),
        ("<think>a</think><answer> </answer>", "think_answer", False, False),
        ("<think>a</think><answer> </answer>", "think", False, False),
        ("<think>a</think><answer>7", "think", False, False),
        ("<think>a</think>", "think", False, False),
        ("<think>a", "think", False, False),
        ("7", "think", False, False),
        (r"<think>a</think>\boxed{}", "think", False, False),
        (r"<think>a</think>\boxed{7", "think", False, False),
        (r"<think>a</think>\boxed{6}, no, \boxed{7}", "think_boxed", False, True),
        (r"<think>\boxed{7}</think> so", "think_boxed", False, False),
        ("It is <answer>7</answer>", "answer", True, True),
        ("<answer>7</answer> I hope", "answer", False, True),
        ("<think>a</think><answer>7</answer>", "answer", True, True),
        ("7", "answer", False, False),
        (r"It is \fbox{7}", "boxed", True, True),
        (r"<think>a \boxed{7}", "boxed", False, False),
        ("7", "boxed", False, False),
        ("", "think", False, False),
    ],
)
def test_each_shape_strict_and_loose(text, shape, strict, loose):
    assert well_formed(text, shape=shape) is strict
    assert well_formed(text, shape=shape, strict=False) is loose


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<think>a</think>\n<answer>7</answer>", 1.0),
        ("<think>a</think>", 0.1),
        ("<answer>7</answer>", 0.5),
        ("so <think>a</think> then <answer>7</answer>", 0.6),
        ("<answer> </answer>", 0.0),
        ("7", 0.0),
    ],
)
def test_partial_credit_is_that_of_grpo_zero(rollout, text, value):
    found = format([rollout(text)], shape="think_answer", thought=0.1, answered=0.5)
    assert found[0].value == pytest.approx(value)


def test_a_thought_opened_by_the_prompt_counts_as_opened(rollout):
    text = "hm</think><answer>7</answer>"
    opened = format([rollout(text, prompt="Q: ?\n<think>\n")], shape="think_answer")
    assert [opened[0].value, format([rollout(text)], shape="think_answer")[0].value] == [1.0, 0.0]


def test_it_gives_no_verdict_so_that_a_well_formed_wrong_answer_stays_wrong(rollout):
    with build_grader({"format": {"weight": 0.1}, "math_answer": {}}) as grader:
        (scored,) = grader.score([rollout("<think>a</think><answer>6</answer>")])
    assert scored.score.value == pytest.approx(0.1)
    assert not scored.score.verdict


def test_long_hostile_text_is_read_in_linear_time():
    for text in ("<think>" * 50_000, "<answer>" * 50_000, r"\boxed{" * 50_000, "<think>a</think>" * 20_000):
        assert not well_formed(text, shape="think_answer", strict=False)


def test_an_unknown_shape_is_refused_before_any_work():
    with pytest.raises(ConfigError, match="shape"):
        build_grader({"format": {"shape": "poem"}})
