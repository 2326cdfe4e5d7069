from __future__ import annotations

import dataclasses

import pytest
from chat_families import FAMILIES, template_ids
from chat_families import tokenizer as family_tokenizer

from ansatz.cli.opened_model import template_of
from ansatz.config.chat import ChatTemplate
from ansatz.errors import ModelError
from ansatz.prompts.render import render
from ansatz.prompts.templates import STEP_BY_STEP
from ansatz.special_tokens import end_of_turn
from ansatz.types import Problem
from tools.families import tokenizer

PROBLEM = Problem(id="p", question="t5 t6", answers=("5",), source="test", split="train")
SCHEMA = {"type": "function", "function": {"name": "add", "description": "t30", "parameters": {"type": "object"}}}
GEMMA = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<start_of_turn>user\n{{ messages[0].content }}<end_of_turn>\n"
)
DROPS = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"


def with_template(text: str | None):
    words = tokenizer()
    words.chat_template = text
    return words


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("system", [None, "t7 t8"])
@pytest.mark.parametrize("arguments", [{}, {"enable_thinking": False}])
def test_a_chat_prompt_has_the_token_ids_of_the_tokenizers_own_template(name, system, arguments) -> None:
    words = family_tokenizer(name)
    chat = ChatTemplate(name="chat", system=system, arguments=arguments)
    prompt = render(PROBLEM, chat, words)
    turns = [] if system is None else [{"role": "system", "content": system}]
    turns.append({"role": "user", "content": f"t5 t6\n{STEP_BY_STEP}"})
    assert list(prompt.token_ids) == template_ids(words, turns, **arguments)
    assert prompt.token_ids.count(words.bos_token_id) == bool(FAMILIES[name].begin)  # and not twice
    assert (system is None) == ("t7 t8" not in prompt.text)
    assert (name == "Qwen3" and arguments != {}) == ("</think>" in prompt.text)


@pytest.mark.parametrize("name", ["Qwen2.5", "Qwen3", "Llama 3", "Mistral"])
def test_tools_are_rendered_by_the_template_and_a_rows_replace_the_recipes(name: str) -> None:
    words, chat = family_tokenizer(name), ChatTemplate(name="chat", user="none", tools=[SCHEMA])
    turns = [{"role": "user", "content": "t5 t6"}]
    assert list(render(PROBLEM, chat, words).token_ids) == template_ids(words, turns, tools=[SCHEMA])
    other = {"name": "subtract", "parameters": {}}
    row = dataclasses.replace(PROBLEM, meta={"tools": [other]})
    assert list(render(row, chat, words).token_ids) == template_ids(words, turns, tools=[other])


@pytest.mark.parametrize("name", ["Gemma 3", "Phi-4", "DeepSeek-R1-distill"])
def test_a_template_that_does_not_show_the_tools_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="does not show the tools of problem 'p'"):
        render(PROBLEM, ChatTemplate(name="chat", tools=[SCHEMA]), family_tokenizer(name))


def test_arguments_of_a_row_have_precedence_and_must_be_known_to_the_template() -> None:
    row = dataclasses.replace(PROBLEM, meta={"chat_template_kwargs": {"enable_thinking": False}})
    chat = ChatTemplate(name="chat", arguments={"enable_thinking": True})
    assert render(row, chat, family_tokenizer("Qwen3")).text.endswith("<think>\n\n</think>\n\n")
    with pytest.raises(ModelError, match="does not use enable_thinking, which problem 'p' sets"):
        render(row, chat, family_tokenizer("Llama 3"))


@pytest.mark.parametrize(
    ("meta", "what"), [({"tools": [SCHEMA]}, "1 tools"), ({"chat_template_kwargs": {"a": 1}}, "a")]
)
def test_other_templates_refuse_what_only_a_chat_template_can_show(meta, what) -> None:
    with pytest.raises(ModelError, match=rf"problem 'p' (has|sets) {what}.*Use the template chat"):
        render(dataclasses.replace(PROBLEM, meta=meta), "boxed", tokenizer())


def test_roles_that_must_alternate_are_the_templates_own_error() -> None:
    twice = dataclasses.replace(PROBLEM, meta={"earlier_turns": [{"role": "user", "content": "t9"}]})
    with pytest.raises(
        ModelError, match=r"refuses the prompt of problem 'p': Roles must alternate.*keep_earlier_turns"
    ):
        render(twice, "chat", family_tokenizer("Gemma 3"))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_token_that_ends_a_turn_is_found_from_the_template(name: str) -> None:
    words = family_tokenizer(name)
    assert words.convert_ids_to_tokens(end_of_turn(words)) == FAMILIES[name].turn_end


def test_without_a_special_token_after_a_response_there_is_none() -> None:
    for text in (None, DROPS, GEMMA, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"):
        assert end_of_turn(with_template(text)) is None


def test_the_text_of_the_users_turn_can_be_another_template() -> None:
    prompt = render(PROBLEM, ChatTemplate(name="chat", user="tiny"), family_tokenizer("Phi-4"))
    assert (
        prompt.text == "<|im_start|>user<|im_sep|>Question: t5 t6\nAnswer:\n<|im_end|><|im_start|>assistant<|im_sep|>"
    )


def test_the_plain_name_has_no_system_prompt_and_no_arguments() -> None:
    words = family_tokenizer("Qwen3")
    assert render(PROBLEM, "chat", words) == render(PROBLEM, ChatTemplate(name="chat"), words)


@pytest.mark.parametrize(("text", "message"), [(GEMMA, "System role not supported"), (DROPS, "drops the system")])
def test_a_template_without_a_system_role_is_refused_and_never_drops_it(text: str, message: str) -> None:
    words = with_template(text)
    with pytest.raises(ModelError, match=message):
        render(PROBLEM, ChatTemplate(name="chat", system="t7 t8"), words)
    assert "t5 t6" in render(PROBLEM, ChatTemplate(name="chat"), words).text


@pytest.mark.parametrize("system", ["You solve: problems.", 'Line 1\n"Line" {2}, #3', None])
def test_the_text_of_a_chat_template_is_what_a_command_takes(system):
    chat = ChatTemplate(name="chat", system=system, arguments={"deep": True, "odd": {"a": [None, 1.5, "b: c"]}})
    assert "\n" not in str(chat)
    assert template_of(str(chat)) == chat
    assert str(ChatTemplate(name="chat")) == "{name: chat}"
