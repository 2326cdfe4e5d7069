"""What `reset` of an environment adds to prompts, and what becomes of a `reset` that fails."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from chat_families import template_ids, tokenizer
from fake_sampler import FakeSampler
from given import bind_environment

from ansatz.config.chat import ChatTemplate
from ansatz.config.load import check, load_recipe
from ansatz.environments.base import EnvironmentSpec
from ansatz.environments.opened_problems import opening_error, unopened
from ansatz.environments.openings import with_openings
from ansatz.errors import ConfigError, ModelError
from ansatz.loop.rendering import LengthChecker, PromptRenderer
from ansatz.loop.run_sources import RunSources
from ansatz.models.reader import TextReader
from ansatz.prompts.answer_only import render_guess
from ansatz.prompts.chat_responses import TurnRenderer
from ansatz.prompts.render import render, render_demonstration
from ansatz.rollout.base import Sampling
from ansatz.rollout.ticket import Kind, issue_tickets, ticket_from_json, ticket_to_json
from ansatz.types import Problem, Prompt, Reason, Rollout

FILE = __file__.replace("test_openings", "rules")
PLAIN = ChatTemplate(name="chat", user="none")
PROBLEM = Problem(id="p0", question="What is 3 + 4?", answers=("7",), source="test", split="train", solution="It is 7.")
SYSTEM = {"role": "system", "content": "Two players play."}
HELLO = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Welcome to the game."}]
ASKED = {"role": "user", "content": PROBLEM.question}
BOARD = {"role": "user", "content": "The board is empty. Your move?"}
ALL = pytest.mark.parametrize("kind", ["Rules", "AsyncRules", "InstantRules"])


def spec_of(says: Any, *, kind: str = "Rules", template: Any = "tiny", **settings: Any) -> EnvironmentSpec:
    spec = bind_environment({"name": f"{FILE}:{kind}", "says": says, "turns": 2, **settings}, template=template)
    assert spec
    return spec


def opened(says: Any, problem: Problem = PROBLEM, **settings: Any) -> Problem:
    (result,) = with_openings([problem], spec_of(says, **settings))
    return result


def sampled(problem: Problem, spec: EnvironmentSpec) -> Rollout:
    sampler = FakeSampler(lambda prompt, sample: "run;done.", environment=spec)
    prompt = Prompt(problem=problem, text="", token_ids=(1,))
    return sampler.generate([prompt], Sampling(num_samples=1, max_response_tokens=200))[0]


@ALL
def test_a_text_stands_after_the_question_in_every_template(kind: str) -> None:
    problem = opened("Only even answers count.", kind=kind)
    words, shown = tokenizer("Qwen2.5"), f"{PROBLEM.question}\nOnly even answers count."
    assert render(problem, "tiny", words).text == f"Question: {shown}\nAnswer:\n"
    assert list(render(problem, PLAIN, words).token_ids) == template_ids(words, [{"role": "user", "content": shown}])
    assert shown in render_guess(problem, "tiny", words).text
    assert problem.dialogue == shown
    rollout = sampled(problem, spec_of("Only even answers count.", kind=kind))
    assert rollout.text.startswith("run;<4>")
    assert rollout.environment_reward
    assert rollout.environment_reward.value == 1.0


@ALL
@pytest.mark.parametrize("name", ["Qwen2.5", "Llama 3", "Mistral", "Phi-4"])
@pytest.mark.parametrize(
    ("says", "shown"),
    [
        ([SYSTEM], [SYSTEM, ASKED]),
        ([SYSTEM, *HELLO], [SYSTEM, *HELLO, ASKED]),
        ([*HELLO, BOARD], [*HELLO, BOARD]),
        ([BOARD], [BOARD]),
    ],
)
def test_messages_stand_before_the_question_or_in_its_place(kind: str, name: str, says: Any, shown: Any) -> None:
    words, spec = tokenizer(name), spec_of(says, kind=kind, template=PLAIN)
    (problem,) = with_openings([PROBLEM], spec)
    assert list(render(problem, PLAIN, words).token_ids) == template_ids(words, shown)
    assert sampled(problem, spec).text.startswith("run;<4>")
    # what the template writes between a response and the next message depends on all turns before them
    said, asked = {"role": "assistant", "content": "RESPONSE"}, {"role": "user", "content": "Next?"}
    text = TurnRenderer(words, PLAIN).text_after(problem, [asked])
    whole = words.apply_chat_template([*shown, said, asked], tokenize=False, add_generation_prompt=True)
    assert whole.endswith(text)


def test_the_turns_of_the_data_stay_and_the_system_prompt_goes_first() -> None:
    problem = dataclasses.replace(PROBLEM, meta={"earlier_turns": [dict(turn) for turn in HELLO], "line": 3})
    says = [SYSTEM, {"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}]
    result = opened(says, problem, template=PLAIN)
    roles = [(turn["role"], turn["content"][0]) for turn in result.earlier_turns]
    assert roles == [("system", "T"), ("user", "H"), ("assistant", "W"), ("user", "A"), ("assistant", "B")]
    assert unopened(result) == problem
    assert unopened(opened("id", problem)) == problem


@ALL
@pytest.mark.parametrize("says", ["nothing", "empty", ""])
def test_without_an_opening_nothing_changes(kind: str, says: str) -> None:
    (result,) = with_openings([PROBLEM], spec_of(says, kind=kind))
    assert result is PROBLEM
    assert with_openings([PROBLEM], bind_environment({"name": "calculator"})) == [PROBLEM]
    assert with_openings([PROBLEM], None) == [PROBLEM]


@ALL
@pytest.mark.parametrize(
    ("says", "error"),
    [
        ("raise", "reset() raised ZeroDivisionError: division by zero"),
        ("exit", "reset() raised "),
        ("odd", "reset() gave int, expected text or None"),
        ("no role", "reset() gave the message {'content': 'x'}, expected a role and a text"),
    ],
)
def test_a_failing_reset_is_an_observation_and_a_crash(kind: str, says: str, error: str) -> None:
    spec = spec_of(says, kind=kind)
    (problem,) = with_openings([PROBLEM], spec)
    words = tokenizer("Qwen2.5")
    assert render(problem, "tiny", words).token_ids == render(PROBLEM, "tiny", words).token_ids
    for shown in (problem, PROBLEM):  # the second one: a response to a prompt without its environment
        rollout = sampled(shown, spec)
        assert f"run;error: {error}" in rollout.text
        reward = rollout.environment_reward
        assert reward
        assert reward.verdict is not None
        assert (reward.value, reward.verdict.reason) == (0.0, Reason.CRASHED)
        assert reward.explanation.startswith(f"environment '{spec.name}': {error}")


@pytest.mark.parametrize("kind", ["Rules", "AsyncSleeper"])
def test_a_reset_has_the_deadline_of_a_call(kind: str) -> None:
    spec = spec_of("hang", kind=kind, timeout_s=0.1)
    problems = [dataclasses.replace(PROBLEM, id=f"p{index}") for index in range(20)]
    results = with_openings(problems, spec)  # side by side
    assert {opening_error(problem) for problem in results} == {"reset() has not returned within 0.1 s"}
    reward = sampled(results[0], spec).environment_reward
    assert reward
    assert reward.explanation.endswith("reset() has not returned within 0.1 s")


@ALL
def test_an_opening_that_the_problem_does_not_determine_is_a_crash(kind: str) -> None:
    spec = spec_of("impure", kind=kind)
    (problem,) = with_openings([PROBLEM], spec)
    reward = sampled(problem, spec).environment_reward
    assert reward
    assert "another opening than the prompt has" in reward.explanation


def test_the_opening_goes_with_the_ticket_and_every_response_starts_from_the_problem_without_it() -> None:
    spec = spec_of("id")
    (problem,) = with_openings([PROBLEM], spec)
    assert problem.question == f"{PROBLEM.question}\nThis is p0: {PROBLEM.question}"
    assert with_openings([problem], spec) == [problem]
    prompt = Prompt(problem=problem, text="", token_ids=(1,))
    sampling = Sampling(num_samples=2, max_response_tokens=20)
    (ticket,) = issue_tickets([prompt], [], key=(Kind.TRAIN, 1, 0), version=0, weights="", sampling=sampling)
    again = ticket_from_json(json.loads(json.dumps(ticket_to_json(ticket))))
    rollouts = FakeSampler(lambda prompt, sample: "run;run;done.", environment=spec).generate([again.prompt], sampling)
    assert [rollout.environment_reward.value for rollout in rollouts if rollout.environment_reward] == [1.0, 1.0]


def renderer_of(says: Any, template: Any = "tiny", **rollout: Any) -> tuple[PromptRenderer, LengthChecker]:
    recipe = load_recipe("tiny_arithmetic_grpo_cpu").model_dump()
    recipe["environment"] = {"name": f"{FILE}:Rules", "says": says}
    recipe["data"]["template"] = template if isinstance(template, str) else template.model_dump()
    recipe["rollout"] |= rollout
    config = check(recipe)
    renderer = RunSources(config).renderer(TextReader(tokenizer=tokenizer("Qwen2.5"), max_context=4096))
    return renderer, LengthChecker(renderer, max_context=4096)


def test_a_prompt_that_is_too_long_with_its_opening_is_found_before_the_run() -> None:
    _, lengths = renderer_of("one two three four five " * 8, max_prompt_tokens=80)
    with pytest.raises(ModelError, match=r"the prompt of problem 'p0' has \d+ tokens, but the limit is 80"):
        lengths.check_prompts([PROBLEM])
    _, lengths = renderer_of("one two", max_prompt_tokens=80)
    lengths.check_prompts([PROBLEM])


def test_a_run_asks_once_for_each_opening_and_shows_it_in_prompts_and_demonstrations() -> None:
    renderer, lengths = renderer_of("id")
    problems = [dataclasses.replace(PROBLEM, id=f"p{index}") for index in range(600)]
    lengths.check_prompts(problems)
    prompts = renderer.prompts(problems)
    assert [f"This is {problem.id}" in prompt.text for problem, prompt in zip(problems, prompts, strict=True)]
    demonstration = renderer.demonstration(problems[3])
    assert demonstration.prompt.token_ids == prompts[3].token_ids
    assert demonstration.assistant_mask == ()
    assert renderer.opened(problems[3]) is prompts[3].problem


def test_what_the_environment_says_as_the_assistant_is_not_taught() -> None:
    words, problem = tokenizer("Qwen2.5"), opened([SYSTEM, *HELLO], template=PLAIN)
    every, last = (render_demonstration(problem, PLAIN, words, every_response=all) for all in (True, False))
    assert every == last
    same = dataclasses.replace(PROBLEM, meta={"earlier_turns": [SYSTEM, *HELLO]})
    assert render_demonstration(same, PLAIN, words, every_response=True) != last


def test_messages_need_the_template_chat() -> None:
    with pytest.raises(ConfigError, match=r"opens the conversation with messages, .* Set data.template to chat"):
        opened([SYSTEM])
    assert opened([BOARD]).question == BOARD["content"]
