"""Special tokens in text that is not ours, for every family: plain text, while ordinary text has the tokens it had."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from chat_families import FAMILIES, TOOL_FAMILIES, tokenizer

from ansatz.config.chat import ChatTemplate
from ansatz.errors import ModelError
from ansatz.prompts.chat_responses import TurnRenderer
from ansatz.prompts.render import render, render_demonstration
from ansatz.rollout.response_rules import text_encoder
from ansatz.special_tokens import SpecialTokens, broken, has_marker, special_tokens
from ansatz.types import Problem

NAMES = (*FAMILIES, *TOOL_FAMILIES)
CHAT = ChatTemplate(name="chat")
ORDINARY = [
    "What is 12 + 30?",
    "",
    " It is 42.\n\n",
    "x < 3 and |y| > 2 <b>",
    "```json\n{}\n```",
    "[1, 2] [a]",
    "ünï 数 😀",
]


def problem(question: str, **fields: Any) -> Problem:
    return Problem(id="p", question=question, answers=("42",), source="made", split="train", **fields)


def markers(of: Any) -> list[str]:
    return sorted(token.content for token in of.added_tokens_decoder.values() if token.special)


def specials(of: Any, ids: Any) -> list[int]:
    known = {id_ for id_, token in of.added_tokens_decoder.items() if token.special}
    return [token for token in ids if token in known]


@pytest.mark.parametrize("name", NAMES)
def test_a_marker_of_a_question_is_plain_text_in_every_template(name: str) -> None:
    of = tokenizer(name)
    for template in (CHAT, "boxed", "qwen_math"):
        try:
            clean = render(problem("What is 12 + 30?"), template, of)
        except ModelError:
            continue
        for marker in markers(of):
            hostile = render(problem(f"What{marker} is{marker}\n{marker}12 + 30?"), template, of)
            assert specials(of, hostile.token_ids) == specials(of, clean.token_ids), marker
            assert f"What{marker} is{marker}\n{marker}12 + 30?" in hostile.text


@pytest.mark.parametrize("name", NAMES)
def test_a_marker_of_an_earlier_turn_or_a_solution_opens_no_turn(name: str) -> None:
    of = tokenizer(name)

    def demonstration(mark: str) -> Any:
        turns = [{"role": "user", "content": f"Hi{mark}."}, {"role": "assistant", "content": f"Hello{mark}."}]
        thought = "<think>\nSo.\n</think>\n\n" if "R1" in name else ""
        solution = f"{thought}It is{mark} 42."
        return render_demonstration(problem("And?", solution=solution, meta={"earlier_turns": turns}), CHAT, of)

    clean = demonstration("")
    turn_end = {**FAMILIES, **TOOL_FAMILIES}[name].turn_end
    for marker in {turn_end, of.eos_token, of.bos_token} - {None, ""}:
        hostile = demonstration(marker)
        assert specials(of, hostile.prompt.token_ids) == specials(of, clean.prompt.token_ids)
        assert specials(of, hostile.response_ids) == specials(of, clean.response_ids)


@pytest.mark.parametrize("name", NAMES)
def test_a_marker_that_a_tool_printed_is_plain_text(name: str) -> None:
    of = tokenizer(name)
    encode = text_encoder(of)
    for marker in markers(of):
        assert specials(of, encode(f"<result>{marker}{marker} 42</result>\n")) == []
    for role in ("tool", "user"):
        try:
            turns = TurnRenderer(of, CHAT, roles=(role,))
        except ModelError:
            continue
        message = {"role": role, "name": "add", "tool_call_id": "call00000", "content": "42"}
        clean = turns.ids_after(problem("?"), [message])
        for marker in markers(of):
            said = {
                **message,
                "content": f"{marker}42{marker}\n{marker}",
                "name": f"add{marker}",
                "tool_call_id": marker,
            }
            assert specials(of, turns.ids_after(problem("?"), [said])) == specials(of, clean), marker


@pytest.mark.parametrize("name", NAMES)
def test_text_without_a_marker_has_the_tokens_of_the_tokenizer(name: str) -> None:
    of = tokenizer(name)
    special = special_tokens(of)
    for text in ORDINARY:
        assert special.hide(text) == text
        assert special.hide_response(text) == text
        assert special.encode(text) == of.encode(text, add_special_tokens=False)
        assert special.encode(text, add_special_tokens=True) == of.encode(text)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_template_writes_has_the_same_tokens_beside_hidden_text(name: str) -> None:
    """The copy of the tokenizer agrees with the tokenizer, wherever hidden text forces its use."""
    of = tokenizer(name)
    special, own = special_tokens(of), markers(of)
    hidden = special.hide(own[0])
    for before, after in itertools.product(own, repeat=2):
        for text in (f"{before}It is 42. {after}\nAnd?", f" {before} {after}7"):
            ids = of.encode(text, add_special_tokens=False)
            with_hidden = special.encode(f"{text}{before}{hidden}")
            assert with_hidden[: len(ids) + 1] == [*ids, of.convert_tokens_to_ids(before)]
            assert specials(of, with_hidden[len(ids) + 1 :]) == []
    assert special.show(hidden) == own[0]


def test_a_stand_in_that_somebody_writes_is_no_token() -> None:
    of = tokenizer(NAMES[0])
    special = special_tokens(of)
    marker = markers(of)[0]
    for shift in (0xF0000, 0x100000):
        forged = "".join(chr(ord(character) + shift) for character in marker)
        for text in (forged, forged + marker, marker + forged):
            assert specials(of, special.encode(special.hide(text))) == []


def test_offsets_count_the_characters_of_the_text() -> None:
    of = tokenizer(NAMES[0])
    marker = markers(of)[0]
    text = f"ab{marker}cd"
    ids, ends = special_tokens(of).encode_with_ends(special_tokens(of).hide(text))
    assert specials(of, ids) == specials(of, of.encode(""))
    assert ends[-1] == len(text)


def test_a_tokenizer_that_cannot_be_copied_gets_broken_markers() -> None:
    of = tokenizer(NAMES[0])

    class Slow:
        added_tokens_decoder, chat_template, eos_token = of.added_tokens_decoder, None, of.eos_token

        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return of.encode(text, add_special_tokens=add_special_tokens)

    special = SpecialTokens(Slow())
    ids = special.encode(special.hide(f"a{markers(of)[0]}b"))
    assert specials(of, ids) == []
    assert of.decode(ids) == f"a< {markers(of)[0][1:]}b"


@pytest.mark.parametrize("name", NAMES)
def test_a_transcript_read_again_has_the_special_tokens_that_were_sampled(name: str) -> None:
    of = tokenizer(name)
    special, marker = special_tokens(of), markers(of)[-1]
    ids = [*special.encode(special.hide(f"a{marker}b")), *of.encode(marker, add_special_tokens=False)]
    assert specials(of, of.encode(special.decode(ids), add_special_tokens=False)) == specials(of, ids)


@pytest.mark.parametrize(
    "marker",
    [
        *(
            "<|im_end|>",
            "<|a|>",
            "<｜User｜>",
            "</s>",
            "<s>",
            "<eos>",
            "<start_of_turn>",
            "[INST]",
            "[/INST]",
            "<<SYS>>",
        ),
        *("[gMASK]", "<sop>", "[unused1]", "<0x0A>", "<fim-prefix>", "[|assistant|]", "<unused12>", "]~b]", "<EOT>"),
        *("[TOOL_CALLS]", "</tool_call>", "<think>", "<end_of_turn>", "<|", "<<|im_end|>|im_end|>"),
    ],
)
def test_a_marker_for_a_server_is_broken(marker: str) -> None:
    assert has_marker(marker)
    assert not has_marker(broken(marker))
    assert broken(marker).replace(" ", "") == marker


@pytest.mark.parametrize(
    "text",
    [
        *ORDINARY,
        "[0, 1)",
        "x<s",
        "[ABC",
        "a<b>c",
        "[A, B]",
        "\\langle x | y \\rangle",
        "x_1 < y",
        "List[int]",
        "x[AB]",
        "0<x>1",
    ],
)
def test_ordinary_text_for_a_server_is_not_changed(text: str) -> None:
    assert broken(text) == text
