from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansatz.errors import DataError, ModelError
from ansatz.prompts.render import render, render_demonstration
from ansatz.prompts.templates import STEP_BY_STEP
from ansatz.types import Problem

BEGIN, END = 1, 2


class ByteTokenizer:
    """One token a byte, from 10 on; with `wrap` it opens and closes every text, as some tokenizers do."""

    def __init__(self, *, chat: bool = True, end: int | None = END, wrap: bool = False) -> None:
        self.chat_template = "yes" if chat else None
        self.eos_token_id, self.wrap = end, wrap

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        ids = [byte + 10 for byte in text.encode()]
        return [BEGIN, *ids, END] if self.wrap and add_special_tokens else ids

    def apply_chat_template(self, conversation: Any, **settings: Any) -> str:
        assert settings == {"tokenize": False, "add_generation_prompt": True}
        return "".join(f"<{m['role']}>{m['content']}" for m in conversation) + "<assistant>"


def problem(question: str = "1+{x}?", solution: str | None = "1+1=2") -> Problem:
    return Problem(id="p7", question=question, answers=("2",), source="test", split="train", solution=solution)


def text_of(ids: tuple[int, ...]) -> str:
    return bytes(i - 10 for i in ids).decode()


def test_a_prompt_is_the_template_with_the_question_braces_untouched() -> None:
    prompt = render(problem(), "tiny", ByteTokenizer())
    assert prompt.text == "Question: 1+{x}?\nAnswer:\n" == text_of(prompt.token_ids)
    assert prompt.problem == problem()


def test_the_chat_template_is_the_tokenizers_around_the_boxed_instruction() -> None:
    prompt = render(problem("1+1?"), "chat", ByteTokenizer(wrap=True))
    assert prompt.text == f"<user>1+1?\n{STEP_BY_STEP}<assistant>" == text_of(prompt.token_ids)


def test_chat_without_a_chat_template_is_refused() -> None:
    with pytest.raises(ModelError, match=r"needs a tokenizer with a chat template.*'boxed'"):
        render(problem(), "chat", ByteTokenizer(chat=False))


def test_a_begin_token_is_kept_and_an_end_token_is_removed() -> None:
    ids = render(problem("1+1?"), "none", ByteTokenizer(wrap=True)).token_ids
    assert ids[0] == BEGIN
    assert END not in ids


def test_a_prompt_that_is_too_long_is_named_with_its_length() -> None:
    assert len(render(problem("12345"), "none", ByteTokenizer(), max_prompt_tokens=5).token_ids) == 5
    with pytest.raises(
        ModelError, match=r"problem 'p7' has 6 tokens, but the limit is 5\. Raise rollout\.max_prompt_tokens"
    ):
        render(problem("123456"), "none", ByteTokenizer(), max_prompt_tokens=5)


def test_a_demonstration_is_the_sampled_prompt_then_the_solution_then_the_end() -> None:
    tokenizer = ByteTokenizer(wrap=True)
    demonstration = render_demonstration(problem(), "tiny", tokenizer)
    assert demonstration.prompt == render(problem(), "tiny", tokenizer)
    assert text_of(demonstration.response_ids[:-1]) == "1+1=2"
    assert demonstration.response_ids[-1] == END


def test_observations_in_a_demonstration_are_tokenised_on_their_own_and_not_taught() -> None:
    class PairTokenizer(ByteTokenizer):
        """Two bytes make a token, so that where a text is cut decides about its tokens."""

        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return [ord(text[n]) * 1000 + ord(text[n + 1 : n + 2] or " ") for n in range(0, len(text), 2)]

    solution = "a1+1b=2\nc"
    shown = dataclasses.replace(problem(solution=solution), meta={"observations": [[5, 8]]})
    tokenizer = PairTokenizer()
    demonstration = render_demonstration(shown, "tiny", tokenizer)
    parts = [tokenizer.encode(text) for text in ("a1+1b", "=2\n", "c")]
    assert demonstration.response_ids == (*parts[0], *parts[1], *parts[2], END)
    assert demonstration.assistant_mask == (*[True] * 3, *[False] * 2, True, True)
    assert render_demonstration(problem(solution=solution), "tiny", tokenizer).assistant_mask == ()


def test_a_demonstration_needs_a_solution_an_end_token_and_room() -> None:
    with pytest.raises(DataError, match="'p7' of 'test' has no worked solution"):
        render_demonstration(problem(solution=None), "tiny", ByteTokenizer())
    with pytest.raises(ModelError, match="no end token"):
        render_demonstration(problem(), "tiny", ByteTokenizer(end=None))
    assert render_demonstration(problem(), "tiny", ByteTokenizer(), max_response_tokens=6)
    with pytest.raises(ModelError, match="has 6 tokens, but the limit is 5"):
        render_demonstration(problem(), "tiny", ByteTokenizer(), max_response_tokens=5)
