"""Renders a Problem as a Prompt, and a Problem with its worked solution as a Demonstration.

Special tokens in the texts of a problem are encoded as plain text. Until then the text is hidden: the markers of
special tokens in it, such as <|im_end|>, are stand-ins (see `special_tokens`). No token spans the end of a prompt:
otherwise, the policy would be trained on prompt tokens that it never sees during sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from ansatz.config.chat import ChatTemplate, Template
from ansatz.errors import DataError, ModelError
from ansatz.prompts.chat_responses import Part, all_responses, last_response, response_tokens
from ansatz.prompts.templates import QUESTION, ChatRenderer, Tokenizer, spelled_out, template_text, with_shots
from ansatz.special_tokens import end_of_turn, special_tokens
from ansatz.types import Problem, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A prompt and the response to learn from; response_ids end with the token that ends a response.

    assistant_mask: False for tokens that are not taught: the observations in a response and, with all responses of a
    conversation, the turns of others between them; empty if every token is taught.
    """

    prompt: Prompt
    response_ids: tuple[int, ...]
    assistant_mask: tuple[bool, ...] = ()


def render(
    problem: Problem, template: Template, tokenizer: Tokenizer, *, max_prompt_tokens: int | None = None
) -> Prompt:
    """Return the problem as the policy sees it, in the named template (see `templates`).

    Only the template "chat" can show a system prompt and the turns before the question.

    Raise ConfigError for an unknown template. Raise ModelError if the template is "chat" and the tokenizer has no chat
    template, if the template cannot show the whole conversation, or if the prompt has more than max_prompt_tokens
    tokens.
    """
    text = _text(with_shots(problem, template), template, tokenizer)
    return _prompt(problem, text, template, tokenizer, max_prompt_tokens)


def _text(problem: Problem, template: Template, tokenizer: Tokenizer) -> str:
    """Return the prompt as hidden text."""
    template = spelled_out(template)  # "chat" as a ChatTemplate with its defaults
    if isinstance(template, ChatTemplate):
        return ChatRenderer(tokenizer, template).prompt(problem)
    template = problem.template or template
    check_shows_all(problem, template)
    return template_text(template).replace(QUESTION, special_tokens(tokenizer).hide(problem.question))


def _prompt(problem: Problem, text: str, template: Template, tokenizer: Any, max_prompt_tokens: int | None) -> Prompt:
    ids = prompt_ids(text, template, tokenizer)
    if max_prompt_tokens is not None and len(ids) > max_prompt_tokens:
        raise ModelError(
            f"the prompt of problem {problem.id!r} has {len(ids)} tokens, but the limit is {max_prompt_tokens}. "
            "Raise rollout.max_prompt_tokens (within the model's context), use a shorter prompt template, or remove "
            "the problem."
        )
    return Prompt(problem=problem, text=special_tokens(tokenizer).show(text), token_ids=tuple(ids))


def prompt_ids(text: str, template: Template, tokenizer: Tokenizer) -> list[int]:
    """Return the tokens of a prompt, given as hidden text, with those that the tokenizer puts before every text."""
    if isinstance(spelled_out(template), ChatTemplate):
        return special_tokens(tokenizer).encode(text)  # the chat template contains them already
    ids = special_tokens(tokenizer).encode(text, add_special_tokens=True)
    # Some tokenizers append the end token to every text.
    return ids[:-1] if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id else ids


def render_demonstration(
    problem: Problem,
    template: Template,
    tokenizer: Tokenizer,
    *,
    max_prompt_tokens: int | None = None,
    max_response_tokens: int | None = None,
    every_response: bool = False,
) -> Demonstration:
    """Return the problem's prompt and its solution, encoded for supervised learning.

    every_response: the responses of the conversation before the question are taught too. The prompt then ends where
    the first of them begins, and the limits hold for the last response and for everything before it. With observations
    in the solution, only the solution is taught.

    Raise the errors of `render`, and DataError for a problem without a solution. Raise ModelError if the tokenizer has
    no end token, if the chat template cannot show the responses (see `chat_responses`), or if the response, including
    its end token, has more than max_response_tokens tokens.
    """
    if problem.solution is None:
        raise DataError(
            f"problem {problem.id!r} of {problem.source!r} has no worked solution, which supervised training needs. "
            "Set solution_key to the field that contains it, or use a source with demonstrations."
        )
    if tokenizer.eos_token_id is None:
        raise ModelError("the tokenizer has no end token (eos_token). Set one in its tokenizer_config.json.")
    shown = with_shots(problem, template)
    text = _text(shown, template, tokenizer)
    prompt = _prompt(problem, text, template, tokenizer, max_prompt_tokens)
    template = spelled_out(template)
    if isinstance(template, str) and problem.response_turns:
        raise ModelError(
            f"the solution of problem {problem.id!r} calls tools, which the prompt template {template!r} cannot "
            "show. Use the template chat, or remove the row."
        )
    special = special_tokens(tokenizer)
    if not every_response and (ids := special.ids_of_sample(problem.solution, problem.response_ids)) is not None:
        parts = [Part(list(prompt.token_ids), False), Part(ids, True)]
        num_tokens = len(ids)
    elif isinstance(template, str) or problem.observations:
        parts = [Part(list(prompt.token_ids), False), *_solution_parts(problem, problem.solution, tokenizer, template)]
        num_tokens = sum(len(part.ids) for part in parts[1:])
    else:
        parts_of = all_responses if every_response else last_response
        parts = parts_of(ChatRenderer(tokenizer, template), shown, text, problem.solution)
        num_tokens = response_tokens(problem, parts)
    if max_response_tokens is not None and num_tokens > max_response_tokens:
        raise ModelError(
            f"the demonstration of problem {problem.id!r} has {num_tokens} tokens, but the limit is "
            f"{max_response_tokens}. Raise rollout.max_response_tokens, or remove the problem."
        )
    return _demonstration(prompt, parts)


def show_prompt(prompt: Prompt, tokenizer: Tokenizer) -> str:
    """Return a prompt as the policy sees it, special tokens visible."""
    text = special_tokens(tokenizer).decode(prompt.token_ids)
    return f"prompt of problem {prompt.problem.id!r}, {len(prompt.token_ids)} tokens:\n{text}"


def show_demonstration(demonstration: Demonstration, tokenizer: Tokenizer) -> str:
    """Return a demonstration in parts, special tokens visible; each line says whether the part is taught."""
    ids, mask = demonstration.response_ids, demonstration.assistant_mask
    masked = [(token, False) for token in demonstration.prompt.token_ids]
    masked += zip(ids, mask or [True] * len(ids), strict=True)
    taught = sum(is_taught for _, is_taught in masked)
    lines = [
        f"demonstration of problem {demonstration.prompt.problem.id!r}, {taught} of {len(masked)} tokens are taught:"
    ]
    for is_taught, part in groupby(masked, key=lambda token: token[1]):
        text = special_tokens(tokenizer).decode([token for token, _ in part])
        lines += [f"{'taught' if is_taught else 'not taught':10} | {line}" for line in text.split("\n")]
    return "\n".join(lines)


def _demonstration(prompt: Prompt, parts: Sequence[Part]) -> Demonstration:
    """Return the tokens of the parts. Everything after the first part is the response. The prompt's text remains that
    of the last question."""
    first, *rest = parts
    mask = tuple(part.is_response for part in rest for _ in part.ids)
    return Demonstration(
        prompt=replace(prompt, token_ids=tuple(first.ids)),
        response_ids=tuple(token for part in rest for token in part.ids),
        assistant_mask=() if all(mask) else mask,
    )


def _solution_parts(problem: Problem, solution: str, tokenizer: Tokenizer, template: Template) -> list[Part]:
    """Return the solution and the end token, in parts that say whether they are taught. The answers of an environment
    are not (`Problem.observations`).

    A worked solution cannot end a turn or open one.

    No token spans the end of an observation, because none does in a sampled response. A solution with observations is a
    sampled response: its text has all that the chat template writes between its turns.
    """
    end_id = None if isinstance(template, str) else end_of_turn(tokenizer)
    parts, end, special = list[Part](), 0, special_tokens(tokenizer)
    if not problem.observations:
        solution = special.hide_response(solution)
    for start, stop in [*problem.observations, [len(solution), len(solution)]]:
        parts.append(Part(special.encode(solution[end:start]), True))
        parts.append(Part(special.encode(solution[start:stop]), False))
        end = stop
    return [*parts, Part([int(tokenizer.eos_token_id) if end_id is None else end_id], True)]


def check_shows_all(problem: Problem, template: str) -> None:
    """Raise ModelError if there is something that only the template "chat" can show: turns before the question, tools,
    or arguments of the chat template."""
    if problem.template_arguments:
        raise ModelError(
            f"problem {problem.id!r} sets {', '.join(problem.template_arguments)} of the chat template, which the "
            f"prompt template {template!r} does not have. Use the template chat, or leave it out with the data setting "
            "keep_earlier_turns: false (of the source fusion: switch: flag)."
        )
    if problem.tools:
        raise ModelError(
            f"problem {problem.id!r} has {len(problem.tools)} tools, which the prompt template {template!r} cannot "
            "show. Use the template chat, or leave them out with the data setting keep_earlier_turns: false."
        )
    if problem.earlier_turns:
        roles = ", ".join(turn["role"] for turn in problem.earlier_turns)
        raise ModelError(
            f"problem {problem.id!r} has {len(problem.earlier_turns)} turns before its question ({roles}), which the "
            f"prompt template {template!r} cannot show. Use the template chat, or leave these turns out with the data "
            "setting keep_earlier_turns: false."
        )
