"""The conversation around a question: the turns before it, and what may follow it.

A policy gives one response, to the last user turn. All turns before that one are its context, which the template `chat`
renders. Nothing is left out silently: a row whose conversation does not have this form cannot be used. For SFT, the
earlier responses of a conversation can be taught as well, each as a demonstration of its own (`earlier_responses`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

from ansatz.data.record_formats import (
    CONVERSATIONS,
    SYSTEM,
    Turn,
    no_text_of,
    only_instructions,
    turns_of,
    without_instructions,
)
from ansatz.data.rows import ABSENT, Row, short
from ansatz.types import SYSTEM_ROLES, Problem

FIELD = "earlier_turns"
"""The field of a row, and the key of a problem's `meta`, with the turns before a question."""


def earlier_turns(row: Row, question_key: str) -> list[dict[str, str]]:
    """The turns before the question, {role, content} each; empty if there are none.

    They are the turns of a chat before its last user turn, or those in the row's field `earlier_turns`. If none of them
    is a system prompt, the row's field `system` or `system_prompt` is the first turn. A system prompt that only asks
    for the form of the answer is left out, because the prompt template asks for it.

    RowError for a field `earlier_turns` that is not a chat, or a turn that is not text.
    """
    value = row.find(question_key)
    turns = _before_question(turns_of(value) or [])
    if turns_of(value) is not None:
        _check_text(row, question_key, value)
    if not turns and (stated := row.find(FIELD)) not in (ABSENT, None, "", []):
        turns = turns_of(stated) or []
        if not turns:
            row.fail(
                f"the field {FIELD!r} is {short(stated)}, expected the turns before the question, such as "
                '[{"role": "system", "content": "..."}]. Repair the row, or rename the field.'
            )
        _check_text(row, FIELD, stated)
    if not any(turn.role in SYSTEM_ROLES for turn in turns):
        texts = (row.find(name) for name in SYSTEM)
        turns = [*(Turn("system", text.strip()) for text in texts if isinstance(text, str) and text.strip()), *turns]
    return [
        {"role": turn.role, "content": turn.text}
        for turn in turns
        if not (turn.role in SYSTEM_ROLES and only_instructions(turn.text))
    ]


def template_fields(row: Row) -> dict[str, Any]:
    """What a row gives to the chat template besides messages, as TRL names it, by the key of a problem's `meta`.

    tools: JSON schemas of functions. chat_template_kwargs: arguments of the template. Both can also be JSON text. Of
    another form, they are fields like any other.
    """
    return {
        name: value
        for name, of_form in (("tools", _are_schemas), ("chat_template_kwargs", _are_arguments))
        if of_form(value := row.find(name))
    }


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in cast("list[Any]", value))


def _are_arguments(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


def earlier_responses(problem: Problem) -> Iterator[Problem]:
    """A problem for each response before the question: the user turn before it, and the response as its solution.

    The n-th has the id ID:responseN, no gold answer, and the turns before it as context. Turns of the assistant that do
    not follow a user turn with text, such as a greeting, remain context only.
    """
    turns = problem.earlier_turns
    pairs = [
        (index, asked["content"], said["content"])
        for index, (asked, said) in enumerate(pairwise(turns))
        if (asked["role"], said["role"]) == ("user", "assistant") and asked["content"] and said["content"]
    ]
    for number, (index, question, response) in enumerate(pairs, start=1):
        yield replace(
            problem,
            id=f"{problem.id}:response{number}",
            question=without_instructions(question),
            answer="",
            solution=response,
            meta={**problem.meta, FIELD: list(turns[:index])},
        )


def check_turns_after(row: Row, question_key: str, worked_keys: tuple[str | None, ...]) -> None:
    """RowError if turns after the question would be ignored.

    worked_keys: the fields that the answer and the solution come from. Of a chat in one of them, or in `messages` or
    `conversations`, one response can follow the question. A chat that only asks, such as `prompt`, must end with the
    question.
    """
    turns = turns_of(row.find(question_key)) or []
    after = [turn.role for turn in turns[len(_before_question(turns)) + 1 :]]
    answered = question_key in (*CONVERSATIONS, *worked_keys)
    if not after or (answered and after == ["assistant"]):
        return
    if after == ["assistant"]:
        row.fail(
            f"the messages in {question_key!r} end with the beginning of a response (a turn of the assistant), which "
            "is not continued. Remove this turn; a prompt template of your own (a .txt file) can end with its text."
        )
    row.fail(
        f"the messages in {question_key!r} go on after the last question with {len(after)} turns ({', '.join(after)}), "
        "expected one turn of the assistant. Split the conversation into one row per response, or remove the row."
    )


def check_one_response(row: Row, key: str | None) -> None:
    """RowError if the field is a chat with several turns, of which only the last one would be used."""
    turns = turns_of(row.find(key)) if key else None
    if turns is not None and len(turns) > 1:
        row.fail(
            f"the field {key!r} has {len(turns)} turns ({', '.join(turn.role for turn in turns)}), expected one "
            "response. Split the conversation into one row per response, or remove the row."
        )


def _before_question(turns: list[Turn]) -> list[Turn]:
    """The turns before the last user turn; empty if there is none."""
    return turns[: max((index for index, turn in enumerate(turns) if turn.role == "user"), default=0)]


def _check_text(row: Row, key: str, turns: Any) -> None:
    kind = next((kind for turn in cast("list[Any]", turns) if (kind := no_text_of(turn)) is not None), None)
    if kind is not None:
        row.fail(f"the messages in {key!r} contain {kind}, expected only text. Remove the row.")
