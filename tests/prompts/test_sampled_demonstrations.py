"""A sampled response that is taught has the tokens that were sampled. What an environment answered is not taught."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from chat_families import tokenizer
from fake_grader import FakeGrader
from test_tool_messages import FAMILY, ONE, PLAIN, TWO, calculator, problem_of, said, sampled

from ansatz.config.load import check, load_recipe
from ansatz.data.pairs import Answered, PairSettings, make_pairs, rejected_of
from ansatz.errors import ConfigError
from ansatz.evaluate.responses import from_row, reward_grader, to_row, with_transcripts
from ansatz.evaluate.selection import Selection, taught_problems, taught_rows
from ansatz.loop.stages.rejection import check_transcripts
from ansatz.prompts.render import render, render_demonstration
from ansatz.types import Finish, Problem, Prompt, Rollout


def taught(prompt: Prompt, response_ids: list[int], mask: list[bool], words: Any, **fields: Any) -> Problem:
    """The problem that teaches the response, after it has been stored and selected."""
    rollout = Rollout(
        prompt=prompt,
        sample=0,
        token_ids=tuple(response_ids),
        behavior_logps=(0.0,) * len(response_ids),
        text=words.decode(response_ids, skip_special_tokens=True),
        finish=Finish.STOP,
        version_min=0,
        version_max=0,
        seed=0,
        sampled_mask=() if all(mask) else tuple(mask),
    )
    (response,) = with_transcripts(reward_grader(FakeGrader(lambda rollout: 1.0)), words)([rollout])
    assert to_row(from_row(to_row(response), where="here")) == to_row(response)
    chosen = Selection(**fields).choose([response], seed=0)
    (row,) = taught_rows(chosen, [response])
    (problem,) = taught_problems(chosen, [prompt.problem])
    assert row["solution"] == problem.solution
    assert row.get("observations", []) == list(problem.observations)
    return problem


@FAMILY
@pytest.mark.parametrize("response", [ONE, TWO, (said("It is 201950."),)], ids=["one call", "two calls", "no call"])
def test_calls_in_the_form_of_the_template(name: str, response: Any) -> None:
    (spec, words), asked = calculator(name), dataclasses.replace(problem_of(*response), meta={})
    assert spec.chat
    prompt = render(asked, spec.chat, words)
    tokens, is_sampled = sampled(name, response)
    response_ids = tokens[len(prompt.token_ids) :]
    demonstration = render_demonstration(taught(prompt, response_ids, is_sampled, words), spec.chat, words)
    assert demonstration.prompt.token_ids == prompt.token_ids
    assert list(demonstration.response_ids) == response_ids
    assert list(demonstration.assistant_mask or (True,) * len(response_ids)) == is_sampled


def test_what_the_data_answered_is_not_taught_with_a_sampled_response() -> None:
    problem = dataclasses.replace(
        problem_of(*ONE, earlier=(said("Hello."),)),
        meta={"observations": [[1, 3]], "response_turns": list(ONE), "line": 4},
    )
    words = tokenizer("Qwen2.5")
    ids = words.encode("It is 201950.", add_special_tokens=False)
    result = taught(Prompt(problem=problem, text="", token_ids=(1,)), ids, [True] * len(ids), words)
    assert (result.solution, result.meta) == ("It is 201950.", {"line": 4, "response_ids": ids})


def test_observations_in_pairs_are_told_apart_too() -> None:
    problem = dataclasses.replace(problem_of(said("")), meta={"observations": [[0, 1]]})
    right, wrong = (
        Answered(sample=index, text=text, tokens=3, correct=not index, answer=text, observations=spans)
        for index, (text, spans) in enumerate([("a<b>c", [[1, 4]]), ("wrong", [])])
    )
    for first, second in (
        (right, wrong),
        (dataclasses.replace(wrong, correct=True), dataclasses.replace(right, correct=False)),
    ):
        (pair,) = make_pairs([problem], {problem.id: [first, second]}, PairSettings(), seed=0).pairs
        for shown, answered in ((pair, first), (rejected_of(pair), second)):
            assert (shown.solution, list(shown.observations)) == (answered.text, answered.observations)


def test_a_teacher_whose_template_writes_messages_differently_is_refused() -> None:
    recipe = load_recipe("tiny_arithmetic_grpo_cpu").model_dump()
    recipe["rejection"] = {"teacher": "some/model"}

    def checked(environment: dict[str, Any], *names: str) -> None:
        config = check(
            {**recipe, "environment": environment, "data": {**recipe["data"], "template": PLAIN.model_dump()}}
        )
        policy, teacher = (SimpleNamespace(tokenizer=tokenizer(name)) for name in names)
        check_transcripts(config, policy, teacher)

    chat: dict[str, Any] = {"name": "calculator", "form": "chat"}
    with pytest.raises(ConfigError, match=r"'calculator' answers in messages.* tools are called in tags"):
        checked(chat, "Qwen2.5", "Llama 3")
    checked(chat, "Qwen2.5", "Qwen2.5")
    checked({"name": "calculator"}, "Qwen2.5", "Llama 3")
