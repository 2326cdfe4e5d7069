"""The reward exact_json compares values: function calls, lists and objects."""

from __future__ import annotations

import json

import pytest

from ansatz.errors import DataError
from ansatz.rewards.exact_json import check_golds, exact_json, is_structure
from ansatz.types import Finish, Problem, Prompt, Reason, Rollout

CALL = '{"name": "add", "arguments": {"a": 1, "b": [2, "x"]}}'


def graded(gold: str, said: str) -> Reason:
    problem = Problem(id="p", question="q?", answers=(gold,), source="test", split="train")
    rollout = Rollout(
        prompt=Prompt(problem=problem, text="", token_ids=()),
        sample=0,
        token_ids=(),
        behavior_logps=(),
        text=said,
        finish=Finish.STOP,
        version_min=0,
        version_max=0,
        seed=0,
    )
    (result,) = exact_json([rollout])
    assert result.verdict is not None
    assert (result.value == 1.0) == result.verdict.correct
    return result.verdict.reason


@pytest.mark.parametrize(
    "said",
    [
        CALL,
        '{"arguments": {"b": [2.0, "x"], "a": 1}, "name": "add"}',
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"I call it:\n```json\n[{CALL}]\n```",
        '{"id": "c", "function": {"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": [2, \\"x\\"]}"}}',
        f'<think>perhaps {{"name": "sub"}}</think>{CALL}',
    ],
)
def test_a_call_is_equal_in_every_form(said: str) -> None:
    assert graded(CALL, said) is Reason.EQUAL


def test_a_list_of_many_objects_is_one_value_in_a_fence_too() -> None:
    gold = json.dumps([{"n": number} for number in range(300)])
    assert graded(gold, f"Here it is:\n```json\n{gold}\n```") is Reason.EQUAL
    assert graded(gold, f"{'[' * 150} no value\n```json\n{gold}\n```") is Reason.EQUAL
    formulas = r"\frac{a}{b} in [a, b), " * 300
    assert graded(CALL, f"{formulas}\n```json\n{CALL}\n```") is Reason.EQUAL


@pytest.mark.parametrize(
    ("gold", "said", "reason"),
    [
        (CALL, '{"name": "add", "arguments": {"a": 1}}', Reason.DIFFERENT),
        (CALL, '{"name": "add", "arguments": {"a": 1, "b": ["x", 2]}}', Reason.DIFFERENT),
        (CALL, '{"name": "add", "arguments": {"a": true, "b": [2, "x"]}}', Reason.DIFFERENT),
        (CALL, f"{CALL} or rather {CALL.replace('add', 'sub')}", Reason.DIFFERENT),
        (CALL, f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>", Reason.DIFFERENT),
        (CALL, f"<think>{CALL}</think>I do not know.", Reason.NO_ANSWER),
        (CALL, f"<think>perhaps {CALL}", Reason.NO_ANSWER),
        (CALL, "<tool_call>{add}</tool_call>", Reason.NO_ANSWER),
        ('["a", "o"]', '["a"]', Reason.DIFFERENT),
        ('["a", "o"]', "a", Reason.NO_ANSWER),
        ('{"total": 120}', '{"total": "120"}', Reason.DIFFERENT),
        ("[1, 2]", "[[[[" * 5000, Reason.NO_ANSWER),
    ],
)
def test_a_near_miss_is_not_paid(gold: str, said: str, reason: Reason) -> None:
    assert graded(gold, said) is reason


def test_gold_answers_must_be_json() -> None:
    check_golds([Problem(id="p", question="?", answers=(CALL,), source="t", split="t")])
    with pytest.raises(DataError, match=r"1 of 1 gold answers are not JSON.*'Paris'"):
        check_golds([Problem(id="p", question="?", answers=("Paris",), source="t", split="t")])
    assert [is_structure(gold) for gold in (CALL, '["a"]', "[1, 2]", "{1, 2}", "[a, b]")] == [
        True,
        True,
        False,
        False,
        False,
    ]
