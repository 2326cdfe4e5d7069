"""Prompts of problems with a system prompt or earlier turns."""

from __future__ import annotations

import dataclasses

import pytest
from chat_families import FAMILIES, template_ids
from chat_families import tokenizer as family_tokenizer
from test_chat import with_template

from ansatz.config.chat import ChatTemplate
from ansatz.config.load import load_recipe
from ansatz.errors import ModelError
from ansatz.loop.run_sources import RunSources
from ansatz.models.reader import TextReader
from ansatz.prompts.answer_only import GUESS_TEXT, render_guess
from ansatz.prompts.render import render
from ansatz.prompts.templates import STEP_BY_STEP
from ansatz.prompts.templates import TEMPLATES as TEXTS
from ansatz.types import Problem
from tools.families import tokenizer

SYSTEM = {"role": "system", "content": "t7 t8"}
TURNS = [{"role": "user", "content": "t9"}, {"role": "assistant", "content": "t10 t11"}]
PLAIN = Problem(id="p", question="t5 t6", answers=("5",), source="test", split="train", solution="t12 t13")


def after(*turns) -> Problem:
    return dataclasses.replace(PLAIN, meta={"earlier_turns": list(turns)})


def question(text: str = TEXTS["boxed"]) -> dict[str, str]:
    return {"role": "user", "content": text.replace("{question}", "t5 t6")}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_whole_conversation_has_the_token_ids_of_the_tokenizers_own_template(name) -> None:
    words = family_tokenizer(name)
    prompt = render(after(SYSTEM, *TURNS), "chat", words)
    assert list(prompt.token_ids) == template_ids(words, [SYSTEM, *TURNS, question()])


def test_the_data_has_the_last_word_on_the_system_prompt() -> None:
    words = family_tokenizer("Qwen2.5")
    chat = ChatTemplate(name="chat", system="t20")
    assert "t20" not in render(after(SYSTEM), chat, words).text
    assert "t7 t8" in render(after(SYSTEM), chat, words).text
    assert render(after(*TURNS), chat, words).text.startswith("<|im_start|>system\nt20<|im_end|>")


def test_guesses_are_asked_for_within_the_conversation() -> None:
    words = family_tokenizer("Qwen3")
    text = words.apply_chat_template([*TURNS, question(GUESS_TEXT)], add_generation_prompt=True, tokenize=False)
    assert render_guess(after(*TURNS), "chat", words).text == text + "\\boxed{"


@pytest.mark.parametrize("template", [name for name in TEXTS if name != "none"])
def test_other_templates_refuse_what_they_cannot_show(template: str) -> None:
    with pytest.raises(ModelError, match=r"2 turns before its question \(user, assistant\), which the prompt template"):
        render(after(*TURNS), template, tokenizer())
    with pytest.raises(ModelError, match="keep_earlier_turns: false"):
        render_guess(after(SYSTEM), "guess", tokenizer())
    assert "t5 t6" in render(PLAIN, template, tokenizer()).text


LEAVES_OUT = {
    "assistant's turn 't10 t11'": "{% for m in messages %}{% if m.role != 'assistant' %}{{ m.content }}{% endif %}"
    "{% endfor %}",
    "user's turn 't9'": "{{ messages[-1].content }}",
}


@pytest.mark.parametrize("what", LEAVES_OUT)
def test_a_chat_template_that_leaves_out_a_turn_is_refused(what: str) -> None:
    with pytest.raises(ModelError, match=f"drops the {what} of problem 'p'"):
        render(after(*TURNS), "chat", with_template(LEAVES_OUT[what]))


def test_a_turn_does_not_count_as_shown_because_a_later_one_has_the_same_words() -> None:
    later = [{"role": "user", "content": "t5"}, {"role": "assistant", "content": "t9"}]
    with pytest.raises(ModelError, match="drops the assistant's turn 't9'"):
        render(after(*later), "chat", with_template(LEAVES_OUT["user's turn 't9'"]))
    with pytest.raises(ModelError, match="drops the user's turn 't5 t6"):
        render(after(later[0]), "chat", with_template(LEAVES_OUT["user's turn 't9'"]))


def test_a_template_may_put_the_system_prompt_into_the_last_user_turn() -> None:
    """As Mistral's first templates do."""
    text = (
        "{% for m in messages[1:] %}[{{ m.role }}] {% if loop.last %}{{ messages[0].content }} {% endif %}"
        "{{ m.content }} {% endfor %}"
    )
    prompt = render(after(SYSTEM, *TURNS), "chat", with_template(text))
    assert prompt.text.startswith("[user] t9 [assistant] t10 t11 [user] t7 t8 t5 t6")


def test_a_template_may_leave_out_the_thought_of_an_earlier_response() -> None:
    thinks = [TURNS[0], {"role": "assistant", "content": "<think>t30</think> t31"}]
    text = "{% for m in messages %}{{ m.content.split('</think>')[-1] }} {% endfor %}"
    prompt = render(after(*thinks), "chat", with_template(text))
    assert "t31" in prompt.text
    assert "t30" not in prompt.text


def test_a_run_checks_such_problems_before_it_starts() -> None:
    config = load_recipe("tiny_arithmetic_grpo_cpu")
    lengths = RunSources(config).lengths(TextReader(tokenizer=tokenizer(), max_context=4096))
    lengths.check_prompts([PLAIN])
    with pytest.raises(ModelError, match="cannot show"):
        lengths.check_prompts([after(SYSTEM)])


def test_the_instruction_about_the_box_is_in_the_last_turn_only() -> None:
    assert render(after(*TURNS), "chat", family_tokenizer("Qwen3")).text.count(STEP_BY_STEP) == 1
