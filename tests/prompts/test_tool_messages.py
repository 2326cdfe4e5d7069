"""Tool calls and their answers in the chat templates of the families, against what transformers makes of the whole."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from chat_families import FAMILIES, TOOL_FAMILIES, template_ids, tokenizer

from ansatz.config.chat import ChatTemplate
from ansatz.environments.base import EnvironmentSpec, bind_environment
from ansatz.environments.episode import at_once
from ansatz.environments.tool_calls import read_turn
from ansatz.errors import ModelError
from ansatz.prompts.chat_responses import TurnRenderer
from ansatz.prompts.render import Demonstration, render, render_demonstration
from ansatz.rollout.base import Sampling
from ansatz.rollout.response_rules import ResponseRules, ResponseState, message_encoder
from ansatz.types import Problem

PLAIN = ChatTemplate(name="chat", user="none")
ASKED = {"role": "user", "content": "What is 347 * 582 - 4?"}
FAMILY = pytest.mark.parametrize("name", TOOL_FAMILIES)
SEVERAL = pytest.mark.parametrize("name", [name for name in TOOL_FAMILIES if name != "Llama 3.1 with tools"])
SCHEMA = {"type": "function", "function": {"name": "calculator", "description": "Computes.", "parameters": {}}}


def calls(*expressions: str, content: str = "") -> dict[str, Any]:
    made = [
        {
            "id": f"call{index:05d}",
            "type": "function",
            "function": {"name": "calculator", "arguments": {"expression": expression}},
        }
        for index, expression in enumerate(expressions)
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}


def answers(*texts: str) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "name": "calculator", "tool_call_id": f"call{index:05d}", "content": text}
        for index, text in enumerate(texts)
    ]


def said(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def problem_of(*response: dict[str, Any], earlier: tuple[dict[str, Any], ...] = ()) -> Problem:
    meta = {"response_turns": list(response), "earlier_turns": list(earlier)}
    return Problem(
        id="p",
        question=ASKED["content"],
        answers=("201950",),
        source="test",
        split="train",
        solution=response[-1]["content"],
        meta={key: value for key, value in meta.items() if value},
    )


ONE = (calls("347*582"), *answers("201954"), said("It is 201950."))
TWO = (calls("347*582"), *answers("201954"), calls("201954-4"), *answers("201950"), said("It is 201950."))
SIDE_BY_SIDE = (calls("347*582", "1+1"), *answers("201954", "2"), said("It is 201950."))
EARLIER = ({"role": "user", "content": "What is 1+1?"}, calls("1+1"), *answers("2"), said("It is 2."))


def as_text(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The turns with arguments as DeepSeek's template takes them."""
    return [
        {
            **turn,
            "tool_calls": [
                {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
                for call in turn["tool_calls"]
            ],
        }
        if "tool_calls" in turn
        else turn
        for turn in turns
    ]


def whole_ids(name: str, turns: list[dict[str, Any]], **settings: Any) -> list[int]:
    turns = as_text(turns) if name.startswith("DeepSeek") else turns
    return template_ids(tokenizer(name), turns, **settings)


def ids(demonstration: Demonstration) -> list[int]:
    return [*demonstration.prompt.token_ids, *demonstration.response_ids]


def taught(name: str, demonstration: Demonstration) -> list[str]:
    """The texts that are taught, each without a gap."""
    texts, mask = [list[int]()], demonstration.assistant_mask or (True,) * len(demonstration.response_ids)
    for token, is_said in zip(demonstration.response_ids, mask, strict=True):
        if is_said:
            texts[-1].append(token)
        elif texts[-1]:
            texts.append([])
    return [tokenizer(name).decode(part) for part in texts if part]


@FAMILY
@pytest.mark.parametrize("response", [ONE, TWO], ids=["one call", "two calls"])
def test_a_solution_with_calls_is_the_conversation_and_only_the_assistant_is_taught(name: str, response: Any) -> None:
    demonstration = render_demonstration(problem_of(*response), PLAIN, tokenizer(name))
    whole = whole_ids(name, [ASKED, *response], for_response=False)
    assert ids(demonstration) == whole[: len(ids(demonstration))]
    assert tokenizer(name).decode(whole[len(ids(demonstration)) :]).strip() == ""
    assert list(demonstration.prompt.token_ids) == whole_ids(name, [ASKED])
    texts = taught(name, demonstration)
    assert len(texts) == sum(turn["role"] == "assistant" for turn in response)
    assert all(text.endswith(TOOL_FAMILIES[name].turn_end) for text in texts)
    assert texts[-1].strip().startswith("It is 201950.")
    assert "347*582" in texts[0]
    assert not any("201954" in text for text in texts if "201954-4" not in text)
    assert demonstration.response_ids
    (call,) = read_turn(texts[0], ["calculator"]).calls
    assert (call.name, call.arguments, call.error) == ("calculator", {"expression": "347*582"}, "")


@SEVERAL
def test_calls_side_by_side_are_answered_together(name: str) -> None:
    demonstration = render_demonstration(problem_of(*SIDE_BY_SIDE), PLAIN, tokenizer(name))
    whole = whole_ids(name, [ASKED, *SIDE_BY_SIDE], for_response=False)
    assert ids(demonstration) == whole[: len(ids(demonstration))]
    read = read_turn(taught(name, demonstration)[0], ["calculator"]).calls
    assert [call.arguments["expression"] for call in read] == ["347*582", "1+1"]


@FAMILY
def test_an_earlier_exchange_with_a_tool_is_context_or_is_taught_too(name: str) -> None:
    problem = problem_of(*ONE, earlier=EARLIER)
    conversation = [*EARLIER, ASKED, *ONE]
    whole = whole_ids(name, conversation, for_response=False)
    last = render_demonstration(problem, PLAIN, tokenizer(name))
    every = render_demonstration(problem, PLAIN, tokenizer(name), every_response=True)
    for demonstration in (last, every):
        assert ids(demonstration) == whole[: len(ids(demonstration))]
    assert len(taught(name, last)) == 2
    assert taught(name, every)[2:] == taught(name, last)
    assert len(taught(name, every)) == 4


@FAMILY
def test_the_limit_counts_the_whole_response(name: str) -> None:
    demonstration = render_demonstration(problem_of(*TWO), PLAIN, tokenizer(name))
    length = len(demonstration.response_ids)
    render_demonstration(problem_of(*TWO), PLAIN, tokenizer(name), max_response_tokens=length)
    with pytest.raises(ModelError, match=f"has {length} tokens, but the limit is {length - 1}"):
        render_demonstration(problem_of(*TWO), PLAIN, tokenizer(name), max_response_tokens=length - 1)


def test_what_a_template_cannot_show_is_refused_in_a_sentence() -> None:
    with pytest.raises(ModelError, match="Only single calls"):
        render_demonstration(problem_of(*SIDE_BY_SIDE), PLAIN, tokenizer("Llama 3.1 with tools"))
    with pytest.raises(ModelError, match="does not show the tool calls in the solution of problem 'p'"):
        render_demonstration(problem_of(*ONE), PLAIN, tokenizer("Phi-4"))
    with pytest.raises(ModelError, match="the solution of problem 'p' calls tools, which the prompt template 'boxed'"):
        render_demonstration(problem_of(*ONE), "boxed", tokenizer("Phi-4"))
    with pytest.raises(ModelError, match="drops the assistant's turn"):
        render(
            dataclasses.replace(problem_of(said("2")), meta={"earlier_turns": list(EARLIER)}), PLAIN, tokenizer("Phi-4")
        )
    spec = bind_environment({"name": "calculator", "form": "chat"}, template=PLAIN)
    assert spec is not None
    assert spec.chat is not None
    for name in ("DeepSeek-R1-distill", "Gemma 3"):
        with pytest.raises(ModelError, match=r"not show messages of the role 'tool'.* \(environment\.form: tags\)\.$"):
            TurnRenderer(tokenizer(name), PLAIN, roles=["tool"])
        with pytest.raises(
            ModelError, match=r"does not show the tools .* called in tags \(environment\.form: tags\)\. "
        ):
            render(problem_of(said("4")), spec.chat, tokenizer(name))


def calculator(name: str) -> tuple[EnvironmentSpec, Any]:
    spec = bind_environment({"name": "calculator", "form": "chat", "turns": 4}, template=PLAIN)
    assert spec is not None
    assert spec.chat is not None
    return spec, tokenizer(name)


def sampled(name: str, response: tuple[dict[str, Any], ...]) -> tuple[list[int], list[bool]]:
    """The tokens of a response that samples the assistant's turns as the template writes them, and which were sampled.

    Everything else comes from the environment.
    """
    spec, words = calculator(name)
    assert spec.chat
    rules = ResponseRules(
        Sampling(num_samples=1, max_response_tokens=1000),
        end_ids={words.convert_tokens_to_ids(TOOL_FAMILIES[name].turn_end)},
        encode=lambda text: words.encode(text, add_special_tokens=False),
        decode=words.decode,
        environment=spec,
        encode_messages=message_encoder(words, spec),
    )
    problem = dataclasses.replace(problem_of(*response), meta={})
    demonstration = render_demonstration(problem_of(*response), spec.chat, words)
    mask = demonstration.assistant_mask or (True,) * len(demonstration.response_ids)
    policy = iter([token for token, is_said in zip(demonstration.response_ids, mask, strict=True) if is_said])
    state = ResponseState(rules, problem)
    while not state.ended:
        state.append(state.forced_token if state.forced_token >= 0 else next(policy))
        if state.waiting:
            assert state.episode
            state.observe(at_once(state.episode.answer(state.turn_text)))
    assert next(policy, None) is None
    return [*render(problem, spec.chat, words).token_ids, *state.token_ids], state.is_sampled


@FAMILY
@pytest.mark.parametrize("response", [ONE, TWO], ids=["one call", "two calls"])
def test_a_sampled_conversation_has_the_ids_of_the_whole_conversation(name: str, response: Any) -> None:
    tokens, is_sampled = sampled(name, response)
    spec, _ = calculator(name)
    whole = whole_ids(name, [ASKED, *response], for_response=False, tools=list(spec.sample.tools))
    assert tokens == whole[: len(tokens)]
    assert tokenizer(name).decode(whole[len(tokens) :]).strip() == ""
    demonstration = render_demonstration(problem_of(*response), spec.chat or "", tokenizer(name))
    assert tuple(is_sampled) == demonstration.assistant_mask


@SEVERAL
def test_calls_side_by_side_are_sampled_as_the_template_writes_them(name: str) -> None:
    tokens, _ = sampled(name, SIDE_BY_SIDE)
    spec, _ = calculator(name)
    whole = whole_ids(name, [ASKED, *SIDE_BY_SIDE], for_response=False, tools=list(spec.sample.tools))
    assert tokens == whole[: len(tokens)]


@FAMILY
def test_the_prompt_shows_the_tools_of_the_environment(name: str) -> None:
    spec, words = calculator(name)
    prompt = render(dataclasses.replace(problem_of(said("2")), meta={}), spec.chat or "", words)
    assert "The exact value of an arithmetic expression" in prompt.text
    assert list(prompt.token_ids) == whole_ids(name, [ASKED], tools=list(spec.sample.tools))


@pytest.mark.parametrize("name", [*FAMILIES, *TOOL_FAMILIES])
@pytest.mark.parametrize("closed", [False, True])
def test_a_user_turn_after_a_response_is_what_the_template_writes(name: str, closed: bool) -> None:
    """An environment that talks as the user. A template that changes what was before is left as it was sampled."""
    words, more = tokenizer(name), {"role": "user", "content": "And 1 + 1?"}
    chat = ChatTemplate(name="chat", user="none", arguments={"enable_thinking": False} if closed else {})
    between = TurnRenderer(words, chat).ids_after(dataclasses.replace(problem_of(said("2")), meta={}), [more])
    before = template_ids(words, [ASKED, said("It is 2.")], for_response=False, **chat.arguments)
    whole = template_ids(words, [ASKED, said("It is 2."), more], **chat.arguments)
    end = words.convert_tokens_to_ids({**FAMILIES, **TOOL_FAMILIES}[name].turn_end)
    num_ends = before[: len(before) - before[::-1].index(end)].count(end)
    position = 0
    for _ in range(num_ends):
        position = whole.index(end, position) + 1
    assert between == whole[position:]
    assert "And 1 + 1?" in words.decode(between)
