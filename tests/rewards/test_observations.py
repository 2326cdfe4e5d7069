"""What a tool has printed is not the policy's answer, for every reward that looks for one."""

from __future__ import annotations

import dataclasses

import pytest
from chat_server import ChatServer

from ansatz.rewards.exact_steps import exact_steps
from ansatz.rewards.format import format as format_reward
from ansatz.rewards.grader import build_grader
from ansatz.trust import TrustedText
from ansatz.types import Problem, Prompt

RIGHT = "<think>So.</think><answer>2+3</answer> \\boxed{5} the answer is 5\n#### 5\n```python\nprint(5)\n```\n"
META = {"nums": [2, 3], "target": 5, "tests": ["assert 1 + 1 == 2"]}
NAMES = ["math_answer", "countdown", "program", "code_tests", "judge"]


def graded(name, rollout, **settings):
    with build_grader({name: settings}) as grader:
        (scored,) = grader.score([rollout])
    return scored.score


@pytest.fixture
def observed(rollout):
    """A response whose tool has printed all that an answer can be; the policy said nothing."""
    text = f"Let me see.{RIGHT}Well"
    return dataclasses.replace(rollout(text, meta=META), observations=((11, 11 + len(RIGHT)),))


def test_what_the_policy_said_has_a_line_end_for_an_observation(observed):
    assert observed.said == "Let me see.\nWell"
    assert [observed.place_of(end) for end in (3, 11, 12, 13, 16)] == [
        3,
        11,
        11,
        len(observed.text) - 3,
        len(observed.text),
    ]


def test_what_ends_at_several_observations_ends_before_the_first(rollout):
    response = dataclasses.replace(rollout("A.[1][2]B"), observations=((2, 5), (5, 8)))
    assert response.said == "A.\n\nB"
    assert [response.place_of(end) for end in (1, 2, 3, 4, 5)] == [1, 2, 2, 2, 9]


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_of_a_tool_is_no_answer(name, observed, rollout):
    with ChatServer(lambda request: "CORRECT") as server:
        settings = {"url": server.url, "model": "m"} if name == "judge" else {}
        score = graded(name, observed, **settings)
        answered = "\\boxed{2+3}" if name == "countdown" else RIGHT
        assert graded(name, rollout(answered, meta=META), **settings).value == 1.0
    assert (score.value, score.verdict.reason.value) == (0.0, "no_answer")


def test_a_shape_that_a_tool_printed_is_not_paid(observed):
    assert [result.value for result in format_reward([observed], shape="think", strict=False)] == [0.0]


def test_functions_of_users_get_what_the_policy_said(observed, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def plain(response): return float('boxed' in response)\n"
        "def verl(data_source, solution_str, ground_truth): return float('boxed' in solution_str)\n"
        "def trl(completions, **kwargs): return [float('boxed' in each) for each in completions]\n"
    )
    for name in ("plain", "verl", "trl"):
        assert graded(TrustedText(f"{file}:{name}"), observed).value == 0.0


def test_steps_of_a_tool_are_not_the_policys(observed):
    steps = "12+3=15\n15*2=30\n"
    problem = Problem(
        id="s",
        question="?",
        answers=("30",),
        source="word_problems",
        split="train",
        meta={"steps": [[12, "+", 3, 15], [15, "*", 2, 30]]},
    )
    text = f"{steps}<r>99+1=3</r>\n\\boxed{{30}}"
    own = dataclasses.replace(
        observed,
        prompt=Prompt(problem=problem, text="?", token_ids=(1,)),
        text=text,
        observations=((len(steps), text.index("\\boxed")),),
    )
    (result,) = exact_steps([own])
    assert result.value == 1.0
    assert [end for end, _ in result.steps] == [8, 16, len(text)]
