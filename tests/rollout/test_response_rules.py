from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest
from scripted import scripted

from ansatz.errors import ConfigError
from ansatz.rollout.base import Sampling
from ansatz.rollout.response_rules import ResponseRules, ResponseState
from ansatz.types import Finish, Problem

END = 0x110000  # tokens are characters here
SAMPLING = Sampling(num_samples=1, max_response_tokens=200)
PROBLEM = Problem(id="p", question="", source="test", split="train")


def decode(token_ids: Sequence[int]) -> str:
    return "".join(chr(token) for token in token_ids if token != END)


def state_after(
    sampled_text: str, *, answer: Callable[[str], str | None] | None = None, turns: int = 9, **settings: object
) -> ResponseState:
    """The final state if the policy samples this text and then the end token. answer: to a turn, which `;` ends."""
    sampling = dataclasses.replace(SAMPLING, **settings)
    encode = lambda text: [ord(character) for character in text]  # noqa: E731
    environment = scripted(answer, turn_ends=(";",), turns=turns) if answer else None
    rules = ResponseRules(sampling, end_ids={END}, encode=encode, decode=decode, environment=environment)
    state = ResponseState(rules, PROBLEM)
    rest = [*encode(sampled_text), END]
    while (rest or state.forced_token >= 0) and not state.ended and len(state.token_ids) < sampling.max_response_tokens:
        state.append(rest.pop(0) if state.forced_token < 0 else state.forced_token)
        if state.waiting:
            state.observe(answer(state.turn_text))
    return state


def forced(state: ResponseState) -> str:
    pairs = zip(state.token_ids, state.is_sampled, strict=True)
    return decode([token for token, is_sampled in pairs if not is_sampled])


def test_a_response_ends_at_its_first_stop_string() -> None:
    state = state_after("so 4. Therefore\n\nQuestion: 2", stop=("Question:", "ore\n", "zzz"))
    assert decode(state.token_ids) == "so 4. Therefore\n"
    assert (state.ended, state.finish, state.sampled_mask) == (True, Finish.STOP, ())
    assert state_after("so 4.", stop=("x",)).token_ids[-1] == END


@pytest.mark.parametrize("length", [1, 2, 30, 90])
def test_a_stop_string_of_any_length_is_found_anywhere(length: int) -> None:
    stop = "".join(chr(97 + n * 7 % 26) for n in range(length - 1)) + "!"
    for before in (0, 1, 50, 100):
        state = state_after("." * before + stop + " more", stop=(stop,))
        assert decode(state.token_ids) == "." * before + stop


def test_the_environment_gets_each_turn_and_its_observation_is_forced_in() -> None:
    turns: list[str] = []

    def answer(turn: str) -> str | None:
        turns.append(turn)
        return {1: "5;", 2: "!"}.get(len(turns))

    state = state_after("a=2+3; b=1; c; d", answer=answer)
    assert decode(state.token_ids) == "a=2+3;5; b=1;! c;"
    assert turns == ["a=2+3;", " b=1;", " c;"]
    assert forced(state) == "5;!"
    assert state.finish is Finish.STOP


def test_the_last_turn_gets_no_observation() -> None:
    state = state_after("a;b;c;", answer=lambda turn: "!", turns=2)
    assert (decode(state.token_ids), state.ended) == ("a;!b;", True)


def test_an_end_token_ends_a_turn_too() -> None:
    turns: list[str] = []
    state = state_after("abc", answer=lambda turn: turns.append(turn) if turns else turns.append(turn) or "more")
    assert turns == ["abc"]
    assert forced(state) == "more"
    assert not state.ended  # the scripted policy has nothing left to say


def test_a_stop_string_ends_a_response_with_an_environment_too() -> None:
    assert decode(state_after("a;b.c;", answer=lambda turn: "!", stop=(".",)).token_ids) == "a;!b."


def test_a_stop_string_that_is_partly_forced_does_not_count() -> None:
    state = state_after("x;b c;", stop=("ab",), answer=lambda turn: "a" if turn == "x;" else None)
    assert decode(state.token_ids) == "x;ab c;"


def test_only_tokens_that_can_complete_a_stop_string_are_looked_at() -> None:
    decoded: list[Sequence[int]] = []
    rules = ResponseRules(
        dataclasses.replace(SAMPLING, stop=("ab",)),
        end_ids={END},
        encode=str.encode,
        decode=lambda token_ids: decoded.append(token_ids) or decode(token_ids),
    )
    state = ResponseState(rules, PROBLEM)
    for token in b"ccccccccccab":
        state.append(token)
    assert state.ended
    assert decoded == [[99], [97], [98], [99] * 8 + [97, 98]]


def test_a_forced_end_token_does_not_end_a_response() -> None:
    environment = scripted(lambda turn: "end", turn_ends=(";",), turns=2)
    rules = {"end_ids": {END}, "encode": lambda text: [END], "decode": decode, "environment": environment}
    state = ResponseState(ResponseRules(SAMPLING, **rules), PROBLEM)
    for token in (ord("x"), ord(";"), END, ord("y")):
        state.append(token)
        if state.waiting:
            state.observe("end")
        assert not state.ended
    assert state.sampled_mask == (True, True, False, True)
    state.append(END)
    assert (state.waiting, state.ended) == (True, False)
    state.observe("end")
    assert state.ended


@pytest.mark.parametrize(
    ("sampled_text", "expected", "finish"),
    [
        ("thinking on and on", "thinking o</t>n and on", Finish.BUDGET),
        ("think</t> so 4", "think</t> so 4", Finish.STOP),
        ("thinki</t> so 4", "thinki</t> so 4", Finish.STOP),  # closed by the last token of the budget
        ("thinkin</t> so 4", "thinkin</t</t>> so 4", Finish.BUDGET),
        ("short", "short", Finish.STOP),
        ("ten tokens", "ten tokens</t>", Finish.BUDGET),
    ],
)
def test_an_open_thought_is_closed_at_its_budget(sampled_text: str, expected: str, finish: Finish) -> None:
    state = state_after(sampled_text, thinking_budget=10, thought_end="</t>", closing="</t>")
    assert decode(state.token_ids) == expected
    assert state.finish is finish
    assert forced(state) == ("</t>" if finish is Finish.BUDGET else "")


def test_a_closing_can_be_longer_than_the_thought_end_and_is_forced_once() -> None:
    state = state_after("a" * 30, thinking_budget=10, thought_end="]", closing=" Enough]", max_response_tokens=25)
    assert decode(state.token_ids) == "a" * 10 + " Enough]" + "a" * 7
    assert state.finish is Finish.LENGTH


def test_the_closing_waits_until_an_observation_is_complete() -> None:
    state = state_after(
        "aaaaaaaa;bb",
        answer=lambda turn: "12345" if ";" in turn else None,
        thinking_budget=11,
        thought_end="]",
        closing="]",
    )
    assert decode(state.token_ids) == "aaaaaaaa;12345]bb"
    assert forced(state) == "12345]"


def test_a_closing_without_room_for_an_answer_is_refused() -> None:
    assert state_after("a", thinking_budget=3, closing="</think>", max_response_tokens=12).ended
    with pytest.raises(ConfigError, match=r"thinking_budget = 4 and the 8 tokens .* no room .* = 12\. Lower"):
        state_after("a", thinking_budget=4, closing="</think>", max_response_tokens=12)
