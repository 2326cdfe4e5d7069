"""System prompts and earlier turns: how rows state them, and which conversations cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansatz.data.hygiene.decontaminate import BenchmarkTexts
from ansatz.data.hygiene.dedup import Dedup
from ansatz.data.jsonl import jsonl
from ansatz.errors import ConfigError, DataError
from ansatz.types import Problem

ASKED, BOXED = "And $2+2$?", "It is $\\boxed{4}$."
BEFORE = [{"role": "user", "content": "What is $1+1$?"}, {"role": "assistant", "content": "It is 2."}]
SYSTEM = {"role": "system", "content": "Be brief."}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def read(folder: Path, *rows: Any, **settings: Any) -> list[Problem]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(jsonl(split="train", path=str(path), **settings))


ROWS = {
    "messages": {"messages": [SYSTEM, *BEFORE, user(ASKED), said(BOXED)]},
    "prompt": {"prompt": [SYSTEM, *BEFORE, user(ASKED)], "ground_truth": "4"},
    "sharegpt with a system field": {
        "system": "Be brief.",
        "conversations": [
            {"from": "human", "value": "What is $1+1$?"},
            {"from": "gpt", "value": "It is 2."},
            {"from": "human", "value": ASKED},
            {"from": "gpt", "value": BOXED},
        ],
    },
    "a field of their own": {"question": ASKED, "answer": "4", "earlier_turns": [SYSTEM, *BEFORE]},
    "prompt and completion": {"prompt": [SYSTEM, *BEFORE, user(ASKED)], "completion": [said(BOXED)]},
}


@pytest.mark.parametrize("name", ROWS)
def test_turns_before_the_question_are_kept_in_order(tmp_path: Path, name: str) -> None:
    (problem,) = read(tmp_path, ROWS[name])
    assert (problem.question, problem.answer) == (ASKED, "4")
    assert problem.earlier_turns == [SYSTEM, *BEFORE]
    assert problem.dialogue == f"What is $1+1$?\nIt is 2.\n{ASKED}"
    (without,) = read(tmp_path, ROWS[name], keep_earlier_turns=False)
    assert without.earlier_turns == ()
    assert without.question == ASKED


def test_a_system_field_next_to_a_plain_question_is_a_system_prompt(tmp_path: Path) -> None:
    """The columns of OpenOrca."""
    row = {"id": "t0.1", "system_prompt": "Be brief.", "question": ASKED, "response": BOXED}
    (problem,) = read(tmp_path, row)
    assert problem.earlier_turns == [SYSTEM]
    assert read(tmp_path, {**row, "system_prompt": ""})[0].earlier_turns == ()


def test_a_system_turn_wins_over_a_system_field(tmp_path: Path) -> None:
    (problem,) = read(tmp_path, {"system": "Other.", "messages": [SYSTEM, user(ASKED), said(BOXED)]})
    assert problem.earlier_turns == [SYSTEM]


@pytest.mark.parametrize("wrap", ["{}", "You are a helpful assistant. {}"])
def test_a_system_prompt_that_only_asks_for_a_box_is_left_to_the_template(tmp_path: Path, wrap: str) -> None:
    asks = wrap.format("Please reason step by step, and put your final answer within \\boxed{}.")
    (problem,) = read(tmp_path, {"prompt": [{"role": "system", "content": asks}, user(ASKED)], "ground_truth": "4"})
    assert (problem.earlier_turns == ()) == (wrap == "{}")


def test_reasoning_of_a_response_is_its_thought(tmp_path: Path) -> None:
    answer = {**said(BOXED), "reasoning_content": "Two and two."}
    (problem,) = read(tmp_path, {"messages": [user(ASKED), answer]})
    assert problem.solution == f"<think>\nTwo and two.\n</think>\n\n{BOXED}"


SCHEMA = {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize("as_text", [False, True], ids=["as objects", "as JSON text"])
def test_tools_and_arguments_of_the_chat_template_are_read(tmp_path: Path, as_text: bool) -> None:
    """TRL's columns; a parquet file has tools as JSON text."""
    fields = {"tools": [SCHEMA], "chat_template_kwargs": {"enable_thinking": False}}
    stored = {name: json.dumps(value) if as_text else value for name, value in fields.items()}
    row = {"messages": [user(ASKED), said(BOXED)], **stored}
    (problem,) = read(tmp_path, row)
    assert (problem.tools, problem.template_arguments) == ([SCHEMA], {"enable_thinking": False})
    (without,) = read(tmp_path, row, keep_earlier_turns=False)
    assert (without.tools, without.template_arguments) == ((), {})
    (other,) = read(tmp_path, {**row, "tools": "a calculator", "chat_template_kwargs": ""})
    assert (other.tools, other.template_arguments, other.meta["tools"]) == ((), {}, "a calculator")


def calling(*arguments: Any, **fields: Any) -> dict[str, Any]:
    calls = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": each}} for each in arguments]
    return {"role": "assistant", "content": "", "tool_calls": calls, **fields}


CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "4"}
FORMS = {
    "OpenAI, arguments as text": [calling('{"a": 2, "b": 2}'), ANSWER],
    "Hugging Face, arguments as objects": [calling({"a": 2, "b": 2}), ANSWER],
    "without an envelope": [{**said(""), "tool_calls": [{"name": "add", "arguments": {"a": 2, "b": 2}}]}, ANSWER],
    "null as content": [calling({"a": 2, "b": 2}, content=None), ANSWER],
    "before there were tool_calls": [
        {**said(""), "function_call": {"name": "add", "arguments": '{"a": 2, "b": 2}'}},
        {"role": "function", "name": "add", "content": "4"},
    ],
    "ShareGPT": [
        {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 2, "b": 2}}'},
        {"from": "observation", "value": "4"},
    ],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("field", ["messages", "completion"])
def test_a_response_that_calls_tools_is_read_in_every_form(tmp_path: Path, form: str, field: str) -> None:
    response = [*FORMS[form], said(BOXED)]
    row = {"messages": [user(ASKED), *response]} if field == "messages" else {"prompt": [user(ASKED)], field: response}
    (problem,) = read(tmp_path, {**row, "tools": [SCHEMA]})
    call, answer, last = problem.response_turns
    assert (call["role"], call["content"]) == ("assistant", "")
    assert [{key: each[key] for key in ("type", "function")} for each in call["tool_calls"]] == [CALL]
    assert (answer["role"], answer["content"]) == ("tool", "4")
    assert last == said(BOXED)
    assert (problem.question, problem.solution, problem.answer) == (ASKED, BOXED, "4")
    assert problem.earlier_turns == ()
    assert problem.tools == [SCHEMA]


def test_calls_before_the_question_are_context_and_each_response_has_its_own(tmp_path: Path) -> None:
    chat = [user("What is $1+1$?"), calling({"a": 1, "b": 1}), ANSWER, said("It is 2."), user(ASKED)]
    chat += [calling({"a": 2}, {"a": 3}), ANSWER, {**ANSWER, "content": "5"}, calling({"b": 2}), ANSWER, said(BOXED)]
    first, last = read(tmp_path, {"id": "c", "messages": chat}, each_response=True)
    assert (first.question, first.solution, first.earlier_turns) == ("What is $1+1$?", "It is 2.", [])
    assert first.response_turns == chat[1:4]
    assert (last.earlier_turns, last.response_turns) == (chat[:4], chat[5:])
    (alone,) = read(tmp_path, {"messages": chat}, keep_earlier_turns=False)
    assert (alone.earlier_turns, alone.response_turns) == ((), chat[5:])


UNFIT = {
    "go on after the last question with 3 turns": {
        "messages": [user(ASKED), said("Wait."), {"role": "tool", "content": "4"}, said(BOXED)]
    },
    "end with the beginning of a response": {"prompt": [user(ASKED), said("<think>")], "ground_truth": "4"},
    "'completion' has 3 turns": {"prompt": [user(ASKED)], "completion": [said("Hm."), user("So?"), said(BOXED)]},
    "contain image_url": {
        "messages": [user([{"type": "image_url"}, {"type": "text", "text": "See."}]), said(BOXED)],
    },
    r"contain tool_calls \(f\) without the answer": {
        "messages": [user(ASKED), {**said(BOXED), "tool_calls": [{"name": "f"}]}],
    },
    "without the answer of the tool": {"prompt": [user(ASKED)], "completion": [calling({})], "answer": "4"},
    "'messages' contain tool_calls": {"messages": [user(ASKED), calling({}), said("Hm."), ANSWER, said(BOXED)]},
    "go on after the last question with 2 turns": {"messages": [user(ASKED), calling({}), ANSWER]},
    "contain tool_calls of an unknown form": {"messages": [user(ASKED), calling("not JSON"), ANSWER, said(BOXED)]},
    "tool_calls of an unknown form, expected": {
        "messages": [user(ASKED), {**said(""), "tool_calls": [{"id": "c1"}]}, ANSWER, said(BOXED)],
    },
    "'earlier_turns' is 'Hello'": {"question": ASKED, "answer": "4", "earlier_turns": "Hello"},
}


@pytest.mark.parametrize("message", UNFIT)
def test_a_conversation_of_another_form_is_refused_and_nothing_is_left_out(tmp_path: Path, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, UNFIT[message])


def test_equal_last_questions_in_different_conversations_are_different_problems(tmp_path: Path) -> None:
    first, again = ({"messages": [user(text), said("."), user("Why?"), said(BOXED)]} for text in ("1+1?", "2+2?"))
    problems = read(tmp_path, first, again, first)
    dedup = Dedup()
    assert [dedup.find(problem) is None for problem in problems] == [True, True, False]


def test_a_test_question_in_an_earlier_turn_is_found(tmp_path: Path) -> None:
    test = "How many of the 9 red apples are left if Ann eats 4 of them on Monday?"
    row = {"messages": [user(test), said("Five."), user("Are you sure?"), said("Yes: $\\boxed{5}$.")]}
    (problem,) = read(tmp_path, row)
    texts = BenchmarkTexts(read(tmp_path, {"question": test, "answer": "5"}))
    texts.count(problem)
    overlap = texts.overlap(problem)
    assert overlap is not None
    assert overlap.kind == "copy"


def test_each_response_of_a_conversation_can_be_taught(tmp_path: Path) -> None:
    chat = [SYSTEM, *BEFORE, user("And $3+3$?"), said("It is 6."), user(ASKED), said(BOXED)]
    first, second, last = read(tmp_path, {"id": "c", "messages": chat}, each_response=True)
    assert [each.id for each in (first, second, last)] == ["c:response1", "c:response2", "c"]
    assert (first.question, first.solution, first.answer) == ("What is $1+1$?", "It is 2.", "")
    assert (second.question, second.solution, second.answer) == ("And $3+3$?", "It is 6.", "")
    assert (last.question, last.solution, last.answer) == (ASKED, BOXED, "4")
    assert first.earlier_turns == [SYSTEM]
    assert second.earlier_turns == [SYSTEM, *BEFORE]
    assert last.earlier_turns == chat[:-2]


def test_turns_of_the_assistant_that_answer_nothing_remain_context(tmp_path: Path) -> None:
    chat = [said("Hello!"), *BEFORE, said("Anything else?"), user(ASKED), said(BOXED)]
    first, last = read(tmp_path, {"messages": chat}, each_response=True)
    assert (first.question, first.earlier_turns) == ("What is $1+1$?", chat[:1])
    assert last.earlier_turns == chat[:-2]


def test_a_row_without_a_conversation_is_one_problem(tmp_path: Path) -> None:
    (problem,) = read(tmp_path, {"question": ASKED, "answer": "4", "system": "Be brief."}, each_response=True)
    assert problem.id.endswith(":1")


def test_every_response_needs_its_context(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="each_response: true needs keep_earlier_turns: true"):
        read(tmp_path, ROWS["messages"], each_response=True, keep_earlier_turns=False)


def test_a_limit_counts_rows_and_not_responses(tmp_path: Path) -> None:
    problems = read(tmp_path, ROWS["messages"], ROWS["messages"], each_response=True, limit=1)
    assert [problem.question for problem in problems] == ["What is $1+1$?", ASKED]
