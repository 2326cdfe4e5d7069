"""Renders a Problem as a Prompt, and a Problem with its worked solution as a Demonstration.

The response of a demonstration is tokenised separately from its prompt. Without this, a token could span the boundary,
and the policy would be trained on prompt tokens that it never sees during sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from jinja2 import TemplateError

from ansatz.config.chat import ChatTemplate, Template
from ansatz.errors import DataError, ModelError
from ansatz.prompts.templates import CHAT, QUESTION, TEMPLATES, template_text
from ansatz.types import Problem, Prompt


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

    ConfigError for an unknown template. ModelError if the template is "chat" and the tokenizer has no chat template, or
    if the prompt has more than max_prompt_tokens tokens.
    """
    if isinstance(template, ChatTemplate) or template == CHAT:
        chat = template if isinstance(template, ChatTemplate) else ChatTemplate(name="chat")
        text = chat_text(TEMPLATES["boxed"], problem, tokenizer, chat)
        ids = tokenizer.encode(text, add_special_tokens=False)  # the chat template contains them already
    else:
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


def chat_text(template: str, problem: Problem, tokenizer: Tokenizer, chat: ChatTemplate | None = None) -> str:
    """The problem in the template's text, as the user's turn. chat: a system prompt and arguments, if there are any.

    ModelError if the tokenizer has no chat template, or if its template refuses the conversation, as some refuse a
    system prompt.
    """
    if not tokenizer.chat_template:
        raise ModelError(
            "prompt template 'chat' needs a tokenizer with a chat template, but this one has none. "
            f"Use one of {', '.join(map(repr, TEMPLATES))}, or a model folder with a chat template."
        )
    content = template.replace(QUESTION, problem.question)
    system = None if chat is None else chat.system
    turns = [] if system is None else [{"role": "system", "content": system}]
    turns.append({"role": "user", "content": content})
    arguments = {} if chat is None else chat.arguments
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **arguments)
    except (TemplateError, TypeError, ValueError) as error:
        raise ModelError(
            f"the tokenizer's chat template refuses the prompt of problem {problem.id!r}: {error}. Leave out "
            "data.template.system, or change data.template.arguments."
        ) from error
    if system is not None and system.strip() not in text:
        raise ModelError(
            "the tokenizer's chat template drops the system prompt. Leave out data.template.system, or put its text "
            "into a template of your own (a .txt file)."
        )
    return text
