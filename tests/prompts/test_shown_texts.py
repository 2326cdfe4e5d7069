"""What the policy sees and is taught can be seen, and special tokens of responses stay in their text."""

from __future__ import annotations

from typing import Any

import pytest
from chat_families import FAMILIES
from chat_families import tokenizer as family_tokenizer

from ansatz.config.chat import ChatTemplate
from ansatz.prompts.render import render, render_demonstration, show_demonstration, show_prompt
from ansatz.prompts.templates import EMPTY_THOUGHT
from ansatz.special_tokens import special_tokens
from ansatz.types import Problem

PROBLEM = Problem(id="p", question="What is 2 + 3?", answers=("5",), solution="It is 5.", source="test", split="train")
# As Qwen3's template: a response after the last question gets a thought, empty if it has none.
ADDS_THOUGHT = (
    "{%- for m in messages %}{%- if m.role == 'assistant' %}<|im_start|>assistant\n"
    "{%- if '</think>' not in m.content %}\n<think>\n\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n"
    "{%- else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- if enable_thinking is defined and not enable_thinking %}"
    "\n<think>\n\n</think>\n\n{% endif %}{%- endif %}"
)


def qwen(template: str | None = None) -> Any:
    tokenizer = family_tokenizer("Qwen3")
    tokenizer.chat_template = template or tokenizer.chat_template
    return tokenizer


def taught(tokenizer: Any, **arguments: Any) -> str:
    template = ChatTemplate(name="chat", user="none", arguments=arguments)
    return special_tokens(tokenizer).decode(render_demonstration(PROBLEM, template, tokenizer).response_ids)


def test_an_empty_thought_of_the_template_is_not_taught_where_a_thought_is_asked_for() -> None:
    tokenizer = qwen(ADDS_THOUGHT)
    assert EMPTY_THOUGHT.match(taught(tokenizer))
    assert taught(tokenizer, enable_thinking=True).startswith("It is 5.")
    assert "<think>" not in taught(tokenizer, enable_thinking=True)


def test_a_prompt_and_a_demonstration_are_shown_with_special_tokens_and_the_mask() -> None:
    tokenizer = qwen(ADDS_THOUGHT)
    shown = show_prompt(render(PROBLEM, "chat", tokenizer), tokenizer)
    assert "<|im_start|>user\nWhat is 2 + 3?" in shown
    lines = show_demonstration(render_demonstration(PROBLEM, "chat", tokenizer), tokenizer).split("\n")
    assert "tokens are taught" in lines[0]
    assert "not taught | What is 2 + 3?" in lines
    assert "taught     | It is 5.<|im_end|>" in lines
    assert not any(line.startswith("taught ") and "What is" in line for line in lines)


@pytest.mark.parametrize("text", ["<think>\nhm\n</think>\n\n\\boxed{5}", "plain \\boxed{5}"])
def test_a_response_is_read_with_all_special_tokens_but_the_end(text: str) -> None:
    tokenizer = qwen()
    special, ids = special_tokens(tokenizer), tokenizer.encode(text, add_special_tokens=False)
    end = tokenizer.encode(FAMILIES["Qwen3"].turn_end, add_special_tokens=False)
    for ending in ([], end, [tokenizer.eos_token_id]):
        assert special.read([*ids, *ending]) == tokenizer.decode(ids, skip_special_tokens=False)
    other = ids[:1]
    assert special.read(ids, other) == tokenizer.decode(
        [id_ for id_ in ids if id_ not in other], skip_special_tokens=False
    )


def test_a_sampled_response_is_taught_by_its_own_tokens() -> None:
    tokenizer = qwen()
    special, end = special_tokens(tokenizer), tokenizer.encode("<|im_end|>", add_special_tokens=False)
    letters = [id_ for letter in "It is 5." for id_ in tokenizer.encode(letter, add_special_tokens=False)]
    assert letters != tokenizer.encode("It is 5.", add_special_tokens=False)
    for ids in ([*letters, *end], letters):
        problem = PROBLEM.answered(special.read(ids), (), ids)
        assert list(render_demonstration(problem, "chat", tokenizer).response_ids) == [*letters, *end]
    other = PROBLEM.answered("It is 5.", (), end)  # the tokens of another tokenizer do not give the text
    whole = [*tokenizer.encode("It is 5.", add_special_tokens=False), *end]
    assert list(render_demonstration(other, "chat", tokenizer).response_ids)[-len(whole) :] == whole
    assert not PROBLEM.answered("x", (), letters).answered("y").response_ids
