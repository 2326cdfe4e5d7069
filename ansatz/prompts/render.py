"""Renders a Problem as a Prompt, and a Problem with its worked solution as a Demonstration.

The response of a demonstration is tokenised separately from its prompt. Without this, a token could span the boundary,
and the policy would be trained on prompt tokens that it never sees during sampling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ansatz.config.chat import ChatTemplate, Template
from ansatz.errors import DataError, ModelError
from ansatz.prompts.templates import CHAT, QUESTION, TEMPLATES, template_text
from ansatz.types import SYSTEM_ROLES, Problem, Prompt


class Tokenizer(Protocol):
    """The part of the transformers tokenizer interface that is used here."""

    eos_token_id: Any
    chat_template: Any

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def apply_chat_template(self, conversation: Any, **settings: Any) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A prompt and the response to learn from; response_ids end with the end-of-sequence token."""

    prompt: Prompt
    response_ids: tuple[int, ...]


def render(
    problem: Problem, template: Template, tokenizer: Tokenizer, *, max_prompt_tokens: int | None = None
) -> Prompt:
    """The problem as the policy sees it, in the named template (see `templates`).

    Only the template "chat" can show a system prompt and the turns before the question.

    ConfigError for an unknown template. ModelError if the template is "chat" and the tokenizer has no chat template, if
    the template cannot show the whole conversation, or if the prompt has more than max_prompt_tokens tokens.
    """
    if isinstance(template, ChatTemplate) or template == CHAT:
        chat = template if isinstance(template, ChatTemplate) else ChatTemplate(name="chat")
        text = chat_text(TEMPLATES["boxed"], problem, tokenizer, chat)
        ids = tokenizer.encode(text, add_special_tokens=False)  # the chat template contains them already
    else:
        check_shows_all(problem, template)
        text = template_text(template).replace(QUESTION, problem.question)
        ids = tokenizer.encode(text)
        if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:  # some tokenizers append the end token to every text
            ids = ids[:-1]
    if max_prompt_tokens is not None and len(ids) > max_prompt_tokens:
        raise ModelError(
            f"the prompt of problem {problem.id!r} has {len(ids)} tokens, but the limit is {max_prompt_tokens}. "
            "Raise rollout.max_prompt_tokens (within the model's context), use a shorter prompt template, or remove "
            "the problem."
        )
    return Prompt(problem=problem, text=text, token_ids=tuple(ids))


def render_demonstration(
    problem: Problem,
    template: Template,
    tokenizer: Tokenizer,
    *,
    max_prompt_tokens: int | None = None,
    max_response_tokens: int | None = None,
) -> Demonstration:
    """The problem's prompt and its solution, encoded for supervised learning.

    Raises the same errors as `render`. DataError for a problem without a solution. ModelError if the tokenizer has no
    end token, or if the response, including its end token, has more than max_response_tokens tokens.
    """
    if problem.solution is None:
        raise DataError(
            f"problem {problem.id!r} of {problem.source!r} has no worked solution, which supervised training needs. "
            "Set solution_key to the field that contains it, or use a source with demonstrations."
        )
    if tokenizer.eos_token_id is None:
        raise ModelError("the tokenizer has no end token (eos_token). Set one in its tokenizer_config.json.")
    prompt = render(problem, template, tokenizer, max_prompt_tokens=max_prompt_tokens)
    response = (*tokenizer.encode(problem.solution, add_special_tokens=False), int(tokenizer.eos_token_id))
    if max_response_tokens is not None and len(response) > max_response_tokens:
        raise ModelError(
            f"the demonstration of problem {problem.id!r} has {len(response)} tokens, but the limit is "
            f"{max_response_tokens}. Raise rollout.max_response_tokens, or remove the problem."
        )
    return Demonstration(prompt=prompt, response_ids=response)


def check_shows_all(problem: Problem, template: str) -> None:
    """ModelError if there are turns before the question, which only the template "chat" can show."""
    if problem.earlier_turns:
        roles = ", ".join(turn["role"] for turn in problem.earlier_turns)
        raise ModelError(
            f"problem {problem.id!r} has {len(problem.earlier_turns)} turns before its question ({roles}), which the "
            f"prompt template {template!r} cannot show. Use the template chat, or leave these turns out with the data "
            "setting keep_earlier_turns: false."
        )


def chat_text(template: str, problem: Problem, tokenizer: Tokenizer, chat: ChatTemplate | None = None) -> str:
    """The conversation in the tokenizer's chat template. The question, in the template's text, is the last user turn.

    chat: a system prompt and arguments, if there are any. A system prompt of the problem itself replaces that of the
    recipe: it belongs to this question, and the recipe's is for all questions without one.

    ModelError if the tokenizer has no chat template, if its template refuses the conversation, as some refuse a system
    prompt, or if it leaves out a turn.
    """
    if not tokenizer.chat_template:
        raise ModelError(
            "prompt template 'chat' needs a tokenizer with a chat template, but this one has none. "
            f"Use one of {', '.join(map(repr, TEMPLATES))}, or a model folder with a chat template."
        )
    turns = [*problem.earlier_turns, {"role": "user", "content": template.replace(QUESTION, problem.question)}]
    if chat is not None and chat.system is not None and not any(turn["role"] in SYSTEM_ROLES for turn in turns):
        turns.insert(0, {"role": "system", "content": chat.system})
    arguments = {} if chat is None else chat.arguments
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **arguments)
    except Exception as error:  # a template is a program, which can raise anything
        raise ModelError(
            f"the tokenizer's chat template refuses the prompt of problem {problem.id!r}: {error}. Leave out "
            "data.template.system, or change data.template.arguments."
            + (_WITHOUT_TURNS if problem.earlier_turns else "")
        ) from error
    if not isinstance(text, str):
        raise ModelError(f"the tokenizer's chat template gives {text!r:.60}, expected text. Correct the template.")
    _check_complete(text, turns, problem)
    return text


_WITHOUT_TURNS = " The data setting keep_earlier_turns: false leaves out the turns before the question."


def _check_complete(text: str, turns: Sequence[Mapping[str, str]], problem: Problem) -> None:
    """ModelError if a turn is not in the text, in its place. A template may put a system prompt anywhere (Mistral's
    put it into the last user turn), and may leave out the thought of an earlier response."""
    end = 0
    for turn in turns:
        system = turn["role"] in SYSTEM_ROLES
        said = turn["content"].rpartition("</think>")[2].strip()
        start = text.find(said, 0 if system else end)
        if start < 0:
            what = "system prompt" if system else f"{turn['role']}'s turn {said[:40]!r}"
            raise ModelError(
                f"the tokenizer's chat template drops the {what} of problem {problem.id!r}. Leave out "
                "data.template.system, or put its text into a template of your own (a .txt file)."
                + (_WITHOUT_TURNS if problem.earlier_turns else "")
            )
        end = end if system else start + len(said)
