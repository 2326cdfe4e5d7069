import pytest

from ansatz.errors import ConfigError, ModelError
from ansatz.prompts.answer_only import GUESS_TEXT, OPENING, guess_of, render_guess
from ansatz.types import Problem

PROBLEM = Problem(id="p", question="What is 1 + 1?", answers=("2",), source="test", split="train")


class Letters:
    """A token a character; begins and closes every text when asked for special tokens."""

    eos_token_id = 3
    chat_template = None

    def encode(self, text, *, add_special_tokens=True):
        ids = [ord(letter) for letter in text]
        return [2, *ids, 3] if add_special_tokens else ids

    def apply_chat_template(self, conversation, **_):
        return f"<user>{conversation[0]['content']}<assistant>"


@pytest.mark.parametrize("template", ["guess", "tiny"])
def test_the_response_begins_within_the_box_and_no_end_token_stands_before_it(template):
    prompt = render_guess(PROBLEM, template, Letters())
    assert prompt.text.endswith(OPENING)
    assert "What is 1 + 1?" in prompt.text
    assert prompt.token_ids == (2, *map(ord, prompt.text))


def test_a_chat_model_is_asked_in_its_own_template_without_a_word_on_reasoning_step_by_step():
    tokenizer = Letters()
    with pytest.raises(ModelError, match="needs a tokenizer with a chat template"):
        render_guess(PROBLEM, "chat", tokenizer)
    tokenizer.chat_template = "some"
    prompt = render_guess(PROBLEM, "chat", tokenizer)
    asked = GUESS_TEXT.replace("{question}", PROBLEM.question)
    assert prompt.text == f"<user>{asked}<assistant>{OPENING}"
    assert prompt.token_ids == tuple(map(ord, prompt.text))
    assert "step by step" not in prompt.text


def test_an_unknown_template_is_refused():
    with pytest.raises(ConfigError, match="prompt template 'gues' is unknown"):
        render_guess(PROBLEM, "gues", Letters())


@pytest.mark.parametrize(
    ("said", "guess"),
    [
        ("5} because", "\\boxed{5}"),
        ("\\frac{1}{2}}, \\boxed{3}", "\\boxed{\\frac{1}{2}}"),
        ("5 apples", "\\boxed{5 apples"),
        ("", "\\boxed{"),
    ],
)
def test_a_guess_ends_where_its_box_closes(said, guess):
    assert guess_of(said) == guess
