from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansatz_verify.grade import default_pool
from fake_grader import FakeGrader

from ansatz.data.jsonl import jsonl
from ansatz.errors import ConfigError
from ansatz.evaluate.responses import Response, answer_only_grader, from_row, response_of, reward_grader, to_row
from ansatz.evaluate.selection import Selection, candidate, taught_problems, taught_rows
from ansatz.types import Finish, Problem, Prompt, Reason, Rollout, Verdict

PROBLEM = Problem(id="p", question="1 + 1?", answers=("2",), source="test", split="train", level="3")
GERMAN = "Zuerst addieren wir die beiden Zahlen, dann lesen wir das Ergebnis ab und schreiben es in den Kasten."
ENGLISH = "First we add the two numbers, then we read off the result of that and write it into the box below."


def response(text, *, sample=0, finish=Finish.STOP, tokens=10, **verdicts):
    marks = verdicts or {"strict": True}
    return Response(
        id="p",
        sample=sample,
        level="3",
        subject="",
        question="1 + 1?",
        answer="2",
        response=text,
        tokens=tokens,
        finish=finish,
        verdicts={
            name: Verdict(correct=right, reason=Reason.EQUAL if right else Reason.DIFFERENT)
            for name, right in marks.items()
        },
    )


def kept(selection, *responses, **how):
    return [response.text for response in selection.choose(responses, seed=0, **how).kept]


@pytest.mark.parametrize(
    ("selection", "stays", "goes"),
    [
        (Selection(language="en"), ENGLISH, GERMAN),
        (Selection(shape="boxed"), r"so \boxed{2}", "so 2"),
        (Selection(shape="think_boxed"), r"<think>1</think>\boxed{2}", r"\boxed{2}"),
    ],
)
def test_filters_by_language_and_form(selection, stays, goes):
    assert kept(selection, response(stays), response(goes, sample=1)) == [stays]
    assert len(kept(Selection(), response(stays), response(goes, sample=1))) == 2


def test_responses_of_more_tokens_than_allowed_are_dropped():
    assert kept(Selection(drop_longer_than=9), response("a", tokens=9), response("b", sample=1, tokens=10)) == ["a"]


def test_the_verdict_that_counts_is_the_one_asked_for_else_the_first():
    both = response("x", strict=False, last_number=True)
    assert not candidate(both).correct
    assert candidate(both, mode="last_number").correct
    with pytest.raises(ConfigError, match=r"no verdict 'strickt'\. Did you mean 'strict'"):
        candidate(both, mode="strickt")


def test_a_response_that_never_ended_is_not_taught():
    assert kept(Selection(), response("x", finish=Finish.LENGTH), response("y", sample=1, finish=Finish.BUDGET)) == [
        "y"
    ]


def test_what_is_taught_is_the_problem_with_the_response_as_its_solution():
    responses = [response("so 2", sample=4)]
    chosen = Selection().choose(responses, seed=0)
    (problem,) = taught_problems(chosen, [PROBLEM])
    assert (problem.id, problem.question, problem.solution, problem.level) == ("p#4", "1 + 1?", "so 2", "3")
    assert taught_rows(chosen, responses) == [
        {"id": "p#4", "question": "1 + 1?", "answer": "2", "solution": "so 2", "level": "3", "tokens": 10}
    ]


def test_what_is_taught_from_a_folder_is_rendered_as_its_problem_was(tmp_path):
    tools = [{"type": "function", "function": {"name": "add"}}]
    meta = {"tools": tools, "chat_template_kwargs": {"enable_thinking": False}, "line": 7}
    meta |= {"prompt_template": "none", "data_source": "mine"}
    asked = rollout("so 2", finish=Finish.STOP, problem=replace(PROBLEM, meta=meta))
    verdicts = {"strict": Verdict(correct=True, reason=Reason.EQUAL)}
    stored = from_row(json.loads(json.dumps(to_row(response_of(asked, verdicts)))), where="here")
    (row,) = taught_rows(Selection().choose([stored], seed=0), [stored])
    assert "line" not in row
    (tmp_path / "taught.jsonl").write_text(json.dumps(row) + "\n")
    (taught,) = jsonl(split="train", path=str(tmp_path / "taught.jsonl"))
    assert (taught.tools, taught.template_arguments) == (tools, {"enable_thinking": False})
    assert (taught.template, taught.origin, taught.solution) == ("none", "mine", "so 2")


def rollout(text, *, finish=Finish.LENGTH, problem=PROBLEM):
    return Rollout(
        prompt=Prompt(problem=problem, text="?", token_ids=(1,)),
        sample=0,
        token_ids=(1,),
        behavior_logps=(0.0,),
        text=text,
        finish=finish,
        version_min=0,
        version_max=0,
        seed=0,
    )


@pytest.mark.parametrize(
    ("response_text", "correct", "text"),
    [
        ("2} and so on", True, r"\boxed{2}"),
        ("3}, no: 2, \\boxed{2}", False, r"\boxed{3}"),  # what is reasoned after the guess does not count
        (r"\frac{4}{2}}.", True, r"\boxed{\frac{4}{2}}"),
        ("2", False, r"\boxed{2"),
    ],
)
def test_a_guess_is_the_content_of_the_first_box(response_text, correct, text):
    (response,) = answer_only_grader(default_pool())([rollout(response_text)])
    assert (response.verdicts["guess"].correct, response.response) == (correct, text)


def test_the_verdict_of_rewards_is_the_graders():
    grade = reward_grader(FakeGrader(lambda rollout: float(rollout.text == "2")))
    responses = grade([rollout("2", finish=Finish.STOP), rollout("3", finish=Finish.STOP)])
    assert [
        (response.response, set(response.verdicts), response.verdicts["reward"].correct) for response in responses
    ] == [
        ("2", {"reward"}, True),
        ("3", {"reward"}, False),
    ]
