"""Tools that are called as chat templates write calls: schemas, answers, and every kind of wrong call."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Literal

import pytest
from made_up import problem

from ansatz.config.chat import ChatTemplate
from ansatz.environments.base import Environment, EnvironmentSpec, TurnSettings, bind_environment
from ansatz.environments.calls import environment_calls
from ansatz.environments.episode import Episode
from ansatz.environments.tools import AsyncToolEnvironment, Tool, ToolEnvironment
from ansatz.errors import ConfigError

CHAT = ChatTemplate(name="chat")


def price(item: str, *, amount: int = 1, currency: Literal["EUR", "USD"] = "EUR") -> float:
    """What some things cost.

    item: singular.
    """
    if item == "unicorn":
        raise LookupError("sold out")
    if item == "exit":
        sys.exit(3)
    return 2.5 * amount


def nothing() -> None:
    return None


async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


def turn(*calls: Any) -> str:
    return "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls) + "<|im_end|>"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def answer(environment: Environment, text: str, *, timeout_s: float = 5.0, chars: int = 2000) -> Any:
    settings = TurnSettings(timeout_s=timeout_s, max_observation_chars=chars)
    spec = EnvironmentSpec(name="shop", make=lambda: environment, settings=settings, sample=environment, chat=CHAT)
    with environment_calls(spec) as calls:
        assert calls
        return calls.answer(Episode(spec, problem()), text)


def contents(environment: Environment, text: str, **settings: Any) -> list[str]:
    return [message["content"] for message in answer(environment, text, **settings)]


def test_a_schema_describes_the_function() -> None:
    assert Tool.of(price).schema == {
        "type": "function",
        "function": {
            "name": "price",
            "description": "What some things cost.\n\nitem: singular.",
            "parameters": {
                "type": "object",
                "properties": {
                    "item": {"type": "string"},
                    "amount": {"type": "integer", "default": 1},
                    "currency": {"type": "string", "enum": ["EUR", "USD"], "default": "EUR"},
                },
                "required": ["item"],
            },
        },
    }
    json.dumps(Tool.of(nothing).schema)


def test_calls_are_answered_in_order_with_their_ids() -> None:
    shop = ToolEnvironment([price, nothing])
    given = turn(call("price", item="pen", amount=4), {**call("nothing"), "id": "abc456789"})
    assert answer(shop, given) == [
        {"role": "tool", "name": "price", "tool_call_id": "call00000", "content": "10.0"},
        {"role": "tool", "name": "nothing", "tool_call_id": "abc456789", "content": ""},
    ]
    assert answer(shop, "It costs 10.<|im_end|>") is None


@pytest.mark.parametrize(
    ("wrong", "observation"),
    [
        (turn(call("prize", item="pen")), "error: there is no tool 'prize'. The tools are: price, nothing."),
        (turn(call("price")), "error: price: item: field required"),
        (turn(call("price", item=3)), "error: price: item: input should be a valid string"),
        (turn(call("price", item="pen", amount="many")), "error: price: amount: input should be a valid integer"),
        (turn(call("price", item="pen", currency="GBP")), "error: price: currency: input should be 'EUR' or 'USD'"),
        (turn(call("price", item="pen", colour="red")), "error: price: colour: extra inputs are not permitted"),
        (turn(call("price", item="unicorn")), "error: LookupError: sold out"),
        (turn(call("price", item="exit")), "error: SystemExit: 3"),
        ("<tool_call>price of a pen</tool_call>", "error: the call is not valid JSON"),
        (turn({"name": "price", "arguments": ["pen"]}), 'error: the arguments are ["pen"], expected an object'),
    ],
)
def test_a_wrong_call_is_an_observation(wrong: str, observation: str) -> None:
    (text,) = contents(ToolEnvironment([price, nothing]), wrong)
    assert text.startswith(observation)


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ({"code": "90210", "note": "7"}, ("90210", "7", ())),
        ({"code": '"a"', "note": "null", "numbers": "[1, 2]"}, ('"a"', None, (1, 2))),
        ({"code": "null", "numbers": "\n[]\n"}, ("null", None, ())),
    ],
)
def test_what_qwen_3_coder_writes_is_text_where_the_tool_takes_text(
    parameters: dict[str, str], arguments: tuple[Any, ...]
) -> None:
    def show(code: str, note: str | None = None, numbers: tuple[int, ...] = ()) -> str:
        return repr((code, note, numbers))

    written = "".join(f"<parameter={name}>\n{text}\n</parameter>\n" for name, text in parameters.items())
    given = f"<tool_call>\n<function=show>\n{written}</function>\n</tool_call><|im_end|>"
    assert contents(ToolEnvironment([show]), given) == [repr(arguments)]


def test_a_wrong_call_does_not_stop_the_others() -> None:
    given = turn(call("prize"), call("price", item="pen"), call("price"))
    first, second, third = contents(ToolEnvironment([price]), given)
    assert (first[:6], second, third[:6]) == ("error:", "2.5", "error:")


def test_async_tools_are_awaited_and_a_missed_deadline_is_an_answer() -> None:
    assert contents(AsyncToolEnvironment([slow]), turn(call("slow", seconds=0.0))) == ["awake"]
    late = answer(AsyncToolEnvironment([slow]), turn(call("slow", seconds=9)), timeout_s=0.1)
    assert late == [
        {"role": "tool", "name": "slow", "tool_call_id": "call00000", "content": "error: no result within 0.1 s"}
    ]


def test_a_flood_is_cut_in_every_message() -> None:
    def flood(size: int) -> str:
        return "x" * size

    long, short = contents(ToolEnvironment([flood]), turn(call("flood", size=10**6), call("flood", size=5)), chars=60)
    assert (len(long) < 200, "characters left out" in long, short) == (True, True, "xxxxx")


class Talking(Environment):
    def step(self, response: str) -> Any:
        replies: dict[str, Any] = {
            "user": [{"role": "user", "content": "Go on."}],
            "tuple": ({"role": "user", "content": "Go on."},),
            "none": [],
            "no role": [{"content": "?"}],
            "no text": [{"role": "user", "content": 3}],
            "no message": ["Go on."],
        }
        return replies[response]


@pytest.mark.parametrize("name", ["user", "tuple"])
def test_messages_of_any_role_are_observations(name: str) -> None:
    assert answer(Talking(), name) == [{"role": "user", "content": "Go on."}]
    assert answer(Talking(), "none") is None


@pytest.mark.parametrize("name", ["no role", "no text", "no message"])
def test_what_is_no_message_is_an_error(name: str) -> None:
    assert answer(Talking(), name).startswith("error: the environment gave the message ")


def test_messages_need_the_chat_template() -> None:
    section = {"name": "calculator", "form": "chat"}
    with pytest.raises(ConfigError, match=r"'calculator' talks in messages, which the prompt template 'boxed'"):
        bind_environment(section, template="boxed")
    for template in ("chat", "auto", CHAT):
        spec = bind_environment(section, template=template)
        assert spec
        assert spec.chat
        assert [tool["function"]["name"] for tool in spec.chat.tools] == ["calculator"]
    spec = EnvironmentSpec(name="t", make=Talking, settings=TurnSettings(), sample=Talking())
    with environment_calls(spec) as calls:
        assert calls
        text = calls.answer(Episode(spec, problem()), "user")
    assert text == "error: the environment gave list, expected text or None (messages need the prompt template chat)"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"name": "calculator", "form": "xml"}, "form = 'xml'"),
        ({"name": "calculator", "form": "chat", "call": "c"}, r"environment.call is the name of a tag"),
        ({"name": "python", "form": "chat", "result": "r"}, r"environment.result is the name of a tag"),
    ],
)
def test_a_wrong_form_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bind_environment(section, template="chat")


def test_a_function_that_a_call_cannot_name_is_refused() -> None:
    def starred(*items: str) -> str: ...  # pyright: ignore[reportReturnType]

    def bare(item) -> str: ...  # pyright: ignore[reportReturnType]

    with pytest.raises(ConfigError, match=r"'starred' has the parameter \*items"):
        ToolEnvironment([starred])
    with pytest.raises(ConfigError, match=r"the parameter 'item' of the tool 'bare' has no annotation"):
        ToolEnvironment([bare])


def test_the_provided_tools_answer_calls() -> None:
    spec = bind_environment({"name": "calculator", "form": "chat"}, template="chat")
    assert spec
    assert contents(
        spec.make(), turn(call("calculator", expression="347*582"), call("calculator", expression="1/0"))
    ) == [
        "201954",
        "error: division by zero",
    ]
    spec = bind_environment({"name": "python", "form": "chat", "timeout_s": 20}, template="chat")
    assert spec
    with environment_calls(spec) as calls:
        assert calls
        episode = Episode(spec, problem())
        for code, printed in (("x = 6 * 7", "(no output)"), ("print(x)", "42"), ("1 / 0", "ZeroDivisionError")):
            (message,) = calls.answer(episode, turn(call("python", code=code))) or ()
            assert isinstance(message, dict)
            assert printed in message["content"]
