"""Calls in the forms of the families, whole and malformed, and what is no call."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest

from ansatz.environments.tags import TagEnvironment
from ansatz.environments.tool_calls import ToolCall, read_turn, without_end
from tests.cpu_time import least_cpu_s

NAMES = ("add", "python", "brave_search")
ADD = ToolCall(name="add", arguments={"a": 1, "b": [2, "x"]})
CALL = '{"name": "add", "arguments": {"a": 1, "b": [2, "x"]}}'
LLAMA = CALL.replace("arguments", "parameters")
NAMED = '{"a": 1, "b": [2, "x"]}'
ID = ToolCall(name="add", arguments={"a": 1, "b": [2, "x"]}, id="abcdef123")
DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>"


@pytest.mark.parametrize(
    ("turn", "calls"),
    [
        # Qwen, Hermes
        (f"<tool_call>\n{CALL}\n</tool_call><|im_end|>", [ADD]),
        (f"<tool_call>{CALL}</tool_call>", [ADD]),
        (f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call><|im_end|>", [ADD, ADD]),
        (f"<tool_call>\n{CALL}<|im_end|>", [ADD]),  # the policy forgot to close it
        (f"<tool_call>\n{CALL}\n{CALL}\n</tool_call>", [ADD, ADD]),
        (f"<tool_call>[{CALL}, {CALL}]</tool_call>", [ADD, ADD]),
        (f"<think>\nI could <tool_call>add</tool_call>.\n</think>\n\n<tool_call>{CALL}</tool_call>", [ADD]),
        (
            '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>',
            [ToolCall(name="add", arguments={"a": 1})],
        ),
        ('<tool_call>{"name": "add"}</tool_call>', [ToolCall(name="add")]),
        ('<tool_call>{"name": "add", "arguments": null}</tool_call>', [ToolCall(name="add")]),
        ('<tool_call>{"name": "add", "arguments": ""}</tool_call>', [ToolCall(name="add")]),
        ('<tool_call>{"name": "no such", "arguments": {}}</tool_call>', [ToolCall(name="no such")]),
        (f'<tool_call>{{"type": "function", "id": "abcdef123", "function": {CALL}}}</tool_call>', [ID]),
        (
            '<tool_call>{"name": "add", "arguments": {"a": "</tool"}}</tool_call>',
            [ToolCall(name="add", arguments={"a": "</tool"})],
        ),
        # Qwen 3 Coder
        (
            "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx = '1'\n</parameter>\n"
            "</function>\n</tool_call><|im_end|>",
            [ToolCall(name="add", arguments={"a": 1, "b": "x = '1'"})],
        ),
        ("<tool_call><function=add></function></tool_call>", [ToolCall(name="add")]),
        # Llama 3
        (f"<|python_tag|>{LLAMA}<|eom_id|>", [ADD]),
        (f"<|python_tag|>{LLAMA}; {LLAMA}<|eot_id|>", [ADD, ADD]),
        (f"{LLAMA}<|eot_id|>", [ADD]),
        (f"  {LLAMA}\n{LLAMA}<|eot_id|>", [ADD, ADD]),
        (
            '<|python_tag|>brave_search.call(query="the sum of (1) and 2")<|eom_id|>',
            [ToolCall(name="brave_search", arguments={"query": "the sum of (1) and 2"})],
        ),
        (
            '[add(a=1, b=[2, "x"]), python(code="print(1)")]<|eot_id|>',
            [ADD, ToolCall(name="python", arguments={"code": "print(1)"})],
        ),
        # Mistral
        (f"[TOOL_CALLS][{CALL}]</s>", [ADD]),
        (f'[TOOL_CALLS] [{CALL}, {CALL[:-1]}, "id": "abcdef123"}}]</s>', [ADD, ID]),
        (f"[TOOL_CALLS]add[ARGS]{NAMED}</s>", [ADD]),
        (f"[TOOL_CALLS]add[CALL_ID]abcdef123[ARGS]{NAMED}[TOOL_CALLS]add[ARGS]{NAMED}</s>", [ID, ADD]),
        # Phi-4
        (f"<|tool_call|>[{CALL}]<|/tool_call|><|end|>", [ADD]),
        (f"<|tool_call|>[{CALL}]<|end|>", [ADD]),
        (f"functools[{LLAMA}]<|im_end|>", [ADD]),
        # DeepSeek
        (DEEPSEEK.format(f"function<｜tool▁sep｜>add\n```json\n{NAMED}\n```"), [ADD]),
        (DEEPSEEK.format(f"add<｜tool▁sep｜>{NAMED}"), [ADD]),
        (f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{NAMED}", [ADD]),
    ],
)
def test_a_call_is_read_in_the_form_of_its_family(turn: str, calls: list[ToolCall]) -> None:
    assert list(read_turn(turn, NAMES).calls) == calls
    before = read_turn(f"Let me see. {turn}", NAMES)
    if turn.lstrip()[0] not in "{[" or turn.startswith("[TOOL"):
        assert list(before.calls) == calls
        assert before.content.startswith("Let me see. ")
    else:
        assert before.calls == ()  # without a marker, only a whole turn is a call


@pytest.mark.parametrize(
    ("turn", "error"),
    [
        (
            "<tool_call>add 1 and 2</tool_call>",
            "the call is not valid JSON (Expecting value: line 1 column 1 (char 0))",
        ),
        ("<tool_call></tool_call>", "the call is not valid JSON"),
        ("<tool_call>", "the call is not valid JSON"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1</tool_call>', "the call is not valid JSON (Expecting ',"),
        ("<tool_call>{'name': 'add'}</tool_call>", "the call is not valid JSON (Expecting property name"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}</tool_call>', "the call is not valid JSON"),
        ("<tool_call>[]</tool_call>", "the list of calls is empty"),
        ('<tool_call>"add"</tool_call>', 'a call is "add", expected an object'),
        ("<tool_call>[1]</tool_call>", "a call is 1, expected an object"),
        ('<tool_call>{"arguments": {}}</tool_call>', "the call has the name null, expected the name of a tool"),
        ('<tool_call>{"name": 3}</tool_call>', "the call has the name 3"),
        ('<tool_call>{"name": ""}</tool_call>', 'the call has the name ""'),
        ('<tool_call>{"name": "add", "arguments": [1, 2]}</tool_call>', "the arguments are [1, 2], expected an object"),
        ('<tool_call>{"name": "add", "arguments": "1 and 2"}</tool_call>', "the arguments are not valid JSON"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "nested"),
        ('<tool_call>{"name": "add", "arguments": {"a": ' + "[" * 500 + "]" * 500 + "}}</tool_call>", "nested"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1' + "0" * 400 + "}}</tool_call>", "more than 300"),
        ("<|python_tag|>print(1)<|eom_id|>", "the call is not valid JSON"),
        ("<|python_tag|>brave_search.call(query=", "the call is not complete"),
        ("<|python_tag|>brave_search.call(query)<|eom_id|>", "the call is not complete"),
        ('<|python_tag|>brave_search.call("x")<|eom_id|>', "the call is not complete"),
        ("[TOOL_CALLS] add</s>", "the call is not valid JSON"),
        ("[TOOL_CALLS]add[ARGS]{</s>", "the arguments are not valid JSON"),
        ("[TOOL_CALLS]add[ARGS]</s>", ""),
        ("<|tool_call|>nothing<|/tool_call|>", "the call is not valid JSON"),
        ("<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>", "the list of calls is empty"),
        (DEEPSEEK.format("add<｜tool▁sep｜>{1}"), "the arguments are not valid JSON"),
    ],
)
def test_a_malformed_call_is_a_call_with_a_reason(turn: str, error: str) -> None:
    (call,) = read_turn(turn, NAMES).calls
    assert error in call.error
    assert bool(call.error) == bool(error)
    assert len(call.error) < 300


@pytest.mark.parametrize(
    "turn",
    [
        "",
        "The answer is 7.<|im_end|>",
        r"\boxed{7}",
        '{"answer": 7}',
        '{"name": "Ann", "parameters": {}}',  # JSON that names no tool
        "[1, 2, 3]",
        "[max(1, 2)]",
        "[add(1, 2), min(1)]",
        "<think>\n<tool_call>" + CALL + "</tool_call>",  # the thought is still open
        "<think>\n<tool_call>" + CALL + "</tool_call></think>\n\nIt is 7.",
        "{" * 5000,
        "[" * 5000 + ")]",
        "\ud800 \x00 </tool_call>",
    ],
)
def test_an_answer_is_not_a_call(turn: str) -> None:
    read = read_turn(turn, NAMES)
    assert read.calls == ()
    assert read.content == turn


@pytest.mark.parametrize("number", [300, 3_000, 30_000])
@pytest.mark.parametrize(
    ("begin", "piece", "end"),
    [
        ("[", "a.", "f(x=1)]"),
        ("[f", "()", "]"),
        ("[f(x=", "-", "1)]"),
        ("[f(x=", "(", ")]"),
        ("[f(x=f'", "{a}", "')]"),
        ("<|python_tag|>f.call(x=a", "[0]", ")"),
    ],
)
def test_no_nesting_of_a_call_is_an_error_of_the_trainer(begin: str, piece: str, end: str, number: int) -> None:
    calls = read_turn(begin + piece * number + end, ["f"]).calls
    assert all(call.error for call in calls)


def test_any_text_is_read_without_an_error() -> None:
    markers = [
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "<|python_tag|>",
        "functools[",
        "{",
        '"name"',
        ":",
    ]
    markers += [
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "</think>",
        "```",
        ".call(",
        ")",
        "}",
        "]",
    ]
    for first in markers:
        for second in markers:
            for third in markers:
                turn = f"{first}add{second}{third}"
                for call in read_turn(turn, NAMES).calls:
                    json.dumps(call.arguments)
                    assert isinstance(call.name, str)


def test_arguments_keep_their_types() -> None:
    arguments: dict[str, Any] = {"text": 'ünï \n"q"', "number": -1.5e3, "flag": True, "none": None, "list": [[1], {}]}
    turn = f"<tool_call>{json.dumps({'name': 'add', 'arguments': arguments})}</tool_call>"
    assert read_turn(turn, NAMES).calls == (ToolCall(name="add", arguments=arguments),)


HALF = "\\ud83d"
ESCAPED = [
    '<tool_call>{"name": "add", "arguments": {"a": "x%s"}}</tool_call>',
    '<tool_call>{"name": "add", "arguments": {"%s": 1}}</tool_call>',
    '<tool_call>{"name": "add", "arguments": {"a": [{"b": "%s"}]}}</tool_call>',
    '<tool_call>{"name": "add%s", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "add", "id": "%s", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "add", "arguments": "{\\"a\\": \\"\\%s\\"}"}</tool_call>',
    '<tool_call><function=add><parameter=a>"%s"</parameter></function></tool_call>',
    '<|python_tag|>add.call(a="%s")',
    '[add(a="%s")]',
    '[TOOL_CALLS]add[ARGS]{"a": "%s"}',
    '<|tool_call|>[{"name": "add", "arguments": {"a": "%s"}}]',
    'functools[{"name": "add", "arguments": {"a": "%s"}}]',
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>" + '{"a": "%s"}',
]


@pytest.mark.parametrize("form", ESCAPED)
def test_half_a_character_in_a_call_is_an_error_of_that_call(form: str) -> None:
    (call,) = read_turn(form % HALF, NAMES).calls
    assert call.error.startswith("the call has half of a character. ")
    assert call.name in ("add", "add\\ud83d")
    f"{call.name}{call.id}{call.error}".encode()


def test_both_halves_of_a_character_are_that_character() -> None:
    (call,) = read_turn(ESCAPED[0] % (HALF + "\\ude00"), NAMES).calls
    assert call == ToolCall(name="add", arguments={"a": "x\U0001f600"})


# fmt: off
MARKERS = [
    "<tool_call>", "</tool_call>", "<function=", "<function=a>", "</function>", "<parameter=",
    "<parameter=a>", "</parameter>", "<|python_tag|>", ".call(", "[TOOL_CALLS]", "[CALL_ID]",
    "[ARGS]", "<|tool_call|>", "<|/tool_call|>", "functools[", "[add(a=1),",
    "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "```",
    "<|a|>", "<|", "<｜b｜>", "</s>", "<eos>", "<end_of_turn>", "<think>", "</think>", ";", "{}",
    "[]", "[", "{", "a", "a.", '"', "'", "\\", "<", ">", "<calc>", "</calc>",
    '{"name": "add"}', " ", "\n",
]
# fmt: on
"""Every marker of every form, and what can stand between them."""
OPENINGS = ["", "<tool_call>", "<tool_call><function=add>", "<|python_tag|>", "<|python_tag|>a", "[TOOL_CALLS]add"]
OPENINGS += ["[TOOL_CALLS]add[CALL_ID]", "<|tool_call|>", "functools["]
OPENINGS += ["<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>```a"]
LAST = ("", "x")


def read_all(turn: str) -> None:
    read_turn(turn, NAMES)
    without_end(turn)
    TagEnvironment(str, call="calc", result="result").call_in(turn)


@pytest.mark.slow  # tests/test_linear_time.py reads some of such turns in every run
def test_the_work_of_reading_a_turn_grows_with_its_length_and_not_with_its_square() -> None:
    nests = [first + second for first, second in itertools.product(MARKERS, ("", "a", " "))]
    grown = dict[tuple[str, str, str], tuple[float, float]]()
    for opening, nest, last in itertools.product(OPENINGS, nests, LAST):
        short, long = (opening + nest * number + last for number in (500, 2_000))
        begin = time.thread_time()
        read_all(long)
        if time.thread_time() - begin < 0.02:  # far below what a square would take
            continue
        times = least_cpu_s(lambda text=short: read_all(text)), least_cpu_s(lambda text=long: read_all(text))
        if times[1] > 10 * times[0] + 0.02:  # 4 times the length; a square would be 16 times the work
            grown[opening, nest, last] = times
    assert not grown
