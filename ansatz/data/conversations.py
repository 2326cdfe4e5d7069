"""The conversation around a question: the turns before it, and the turns that may follow it.

A policy gives one response, to the last user turn. All turns before that one are its context, which the template `chat`
renders. Nothing is left out silently: a row whose conversation does not have this form cannot be used. For SFT, the
earlier responses of a conversation can be taught as well, each as a demonstration of its own (`earlier_responses`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile, zip_longest
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
from ansatz.data.rows import ABSENT, Row, structured
from ansatz.data.unfit import short
from ansatz.types import SYSTEM_ROLES, Problem

FIELD = "earlier_turns"
"""The field of a row, and the key of a problem's `meta`, with the turns before a question."""
RESPONSE_FIELD = "response_turns"
"""The key of a problem's `meta` with the turns of a response that calls tools (`Problem.response_turns`)."""


def earlier_turns(row: Row, question_key: str) -> list[dict[str, Any]]:
    """Return the turns before the question, {role, content} each; empty if there are none. A turn that calls tools also
    has `tool_calls`, and the answer of a tool can have `tool_call_id` and `name`.

    They are the turns of a chat before its last user turn, or those in the row's field `earlier_turns`. If none of them
    is a system prompt, the row's field `system` or `system_prompt` is the first turn. A system prompt that only asks
    for the form of the answer is left out, because the prompt template asks for it.

    Raise RowError for a field `earlier_turns` that is not a chat, or a turn that is not text.
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
        texts = [text for name in SYSTEM if (text := row.part_of_question(name))]
        turns = [*(Turn("system", text) for text in texts), *turns]
    return [turn.message for turn in turns if not (turn.role in SYSTEM_ROLES and only_instructions(turn.text))]


def response_turns(row: Row, keys: Iterable[str | None]) -> list[dict[str, Any]]:
    """Return the turns of the response in the first of these fields that has one with tools; empty if none has.

    Each is a message: the assistant's with `tool_calls`, the answers of the tools, and the assistant's last one.
    """
    for key in keys:
        turns = turns_of(row.find(key)) if key else None
        after = turns[_question_index(turns) + 1 :] if turns else []
        if _has_tools(after):
            return [turn.message for turn in after]
    return []


def template_fields(row: Row) -> dict[str, Any]:
    """Return a row's values for the chat template besides messages, as TRL names them, by the key of `Problem.meta`.

    tools: JSON schemas of functions. chat_template_kwargs: arguments of the template. Both can also be JSON text. In
    any other form, they are ordinary fields.
    """
    return {
        name: value
        for name, of_form in (("tools", _are_schemas), ("chat_template_kwargs", _are_arguments))
        if of_form(value := structured(row.find(name)))
    }


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in cast("list[Any]", value))


def _are_arguments(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


def earlier_responses(problem: Problem) -> Iterator[Problem]:
    """Yield a problem for each response before the question: the user turn before it, and the response as its solution.

    The n-th has the id ID:responseN, no gold answer, and the turns before it as context. Turns of the assistant that do
    not follow a user turn with text, such as a greeting, remain context only.
    """
    turns, number = problem.earlier_turns, 0
    meta = {key: value for key, value in problem.meta.items() if key != RESPONSE_FIELD}
    for index, asked in enumerate(turns):
        if asked["role"] != "user" or not asked["content"]:
            continue
        said = list(takewhile(lambda turn: turn["role"] in ("assistant", "tool"), turns[index + 1 :]))
        with_tools = any("tool_calls" in turn for turn in said)
        if not said or said[0]["role"] != "assistant" or not (said[0]["content"] or with_tools):
            continue
        if with_tools and said[-1]["role"] != "assistant":
            continue  # the conversation was cut off before the response ended
        number += 1
        yield replace(
            problem,
            id=f"{problem.id}:response{number}",
            question=without_instructions(asked["content"]),
            answers=(),
            solution=said[-1 if with_tools else 0]["content"],
            meta={**meta, FIELD: list(turns[:index]), **({RESPONSE_FIELD: said} if with_tools else {})},
        )


def check_turns_after(row: Row, question_key: str, worked_keys: tuple[str | None, ...]) -> None:
    """Raise RowError if turns after the question would be ignored.

    worked_keys: the fields that the answer and the solution come from. Of a chat in one of them, or in `messages` or
    `conversations`, one response can follow the question, which can call tools. A chat that only asks, such as
    `prompt`, must end with the question.
    """
    turns = turns_of(row.find(question_key)) or []
    following = turns[len(_before_question(turns)) + 1 :]
    after = [turn.role for turn in following]
    answered = question_key in (*CONVERSATIONS, *worked_keys)
    if turns:
        _check_text(row, question_key, row.find(question_key)[-len(following) - 1 :])
    _check_calls_answered(row, question_key, turns)
    if not after or (answered and (after == ["assistant"] or _is_response(row, question_key, following))):
        return
    if after == ["assistant"]:
        row.fail(
            f"the messages in {question_key!r} end with the beginning of a response (a turn of the assistant), which "
            "is not continued. Remove this turn; a prompt template of your own (a .txt file) can end with its text."
        )
    row.fail(
        f"the messages in {question_key!r} go on after the last question with {len(after)} turns ({', '.join(after)}), "
        "expected one turn of the assistant, or turns with tool_calls, each with the answers of its tools, and a last "
        "one without. Split the conversation into one row per response, or remove the row."
    )


def check_one_response(row: Row, key: str | None) -> None:
    """Raise RowError if the field is a chat with several turns: only the last one would be used."""
    turns = turns_of(row.find(key)) if key else None
    if not key or not turns:
        return
    _check_text(row, key, row.find(key))
    _check_calls_answered(row, key, turns)
    if len(turns) > 1 and not _is_response(row, key, turns):
        row.fail(
            f"the field {key!r} has {len(turns)} turns ({', '.join(turn.role for turn in turns)}), expected one "
            "response. Split the conversation into one row per response, or remove the row."
        )


def check_one_turn(row: Row, key: str, *, after_question: bool = False) -> None:
    """Raise RowError if the response in a field, perhaps after the question, has more than the assistant's one turn."""
    if after_question:
        check_turns_after(row, key, (key,))
    else:
        check_one_response(row, key)
    if response_turns(row, [key]):
        row.fail(f"the response in {key!r} calls tools, expected a single turn of the assistant. Remove the row.")


def _question_index(turns: Sequence[Turn]) -> int:
    """Return the index of the last user turn, -1 if there is none."""
    return max((index for index, turn in enumerate(turns) if turn.role == "user"), default=-1)


def _before_question(turns: list[Turn]) -> list[Turn]:
    """Return the turns before the last user turn; empty if there is none."""
    return turns[: max(_question_index(turns), 0)]


def _has_tools(turns: Sequence[Turn]) -> bool:
    return any("tool_calls" in turn.fields for turn in turns)


def _check_calls_answered(row: Row, key: str, turns: Sequence[Turn]) -> None:
    """Raise RowError if a conversation ends with the call of a tool, or goes on without its answer."""
    for turn, following in zip_longest(turns, turns[1:]):
        if "tool_calls" in turn.fields and (following is None or following.role != "tool"):
            name = turn.fields["tool_calls"][0]["function"]["name"]
            row.fail(
                f"the messages in {key!r} contain tool_calls ({name}) without the answer of the tool, expected a turn "
                "of the role tool after them. Add it, or remove the row."
            )


def _is_response(row: Row, key: str, turns: Sequence[Turn]) -> bool:
    """Return whether the turns are one response that calls tools: calls and their answers in turn, and a last turn
    without calls. Raise RowError if a turn is not text."""
    if not _has_tools(turns) or turns[-1].role != "assistant":
        return False
    _check_text(row, key, row.find(key)[-len(turns) :])
    for before, turn in pairwise(turns):
        after_calls = "tool_calls" in before.fields
        if turn.role == "tool" and not (after_calls or before.role == "tool"):
            return False
        if turn.role != "tool" and (turn.role != "assistant" or before.role != "tool"):
            return False
    return turns[0].role == "assistant"


def _check_text(row: Row, key: str, turns: Any) -> None:
    kind = next((kind for turn in cast("list[Any]", turns) if (kind := no_text_of(turn)) is not None), None)
    if kind is not None:
        row.fail(f"the messages in {key!r} contain {kind}, expected only text. Remove the row.")
