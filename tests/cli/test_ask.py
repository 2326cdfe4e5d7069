from __future__ import annotations

import pytest

from ansatz.cli.ask import _Typed, _verdict
from ansatz.rollout.native.sampler import NativeSampler

OPTIONS = ("--template", "tiny", "--threads", 1, "--max-response-tokens", 6)


def test_every_response_is_printed_with_its_verdict_and_the_count_at_the_end(ansatz, model):
    code, out, err = ansatz("ask", model, "What is 2 + 2?", "--answer", 4, "--samples-per-prompt", 3, *OPTIONS)
    assert (code, err) == (0, "")
    assert out.count("--- response ") == 3
    assert out.count("[wrong: ") == 3  # random weights
    assert out.endswith("0 of 3 correct\n")


def test_without_an_answer_there_is_no_verdict(ansatz, model):
    code, out, _ = ansatz("ask", model, "What is 2 + 2?", *OPTIONS)
    assert code == 0
    assert "wrong" not in out
    assert "tokens" in out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"So \boxed{4}", ("correct: the answer is '4'", True)),
        ("The answer is 4.", ("correct: the answer is '4', though not in the format that training asks for", True)),
        (r"\boxed{5}", ("wrong: the answer is '5' (different)", False)),
        ("", ("wrong: no answer (no_answer)", False)),
    ],
)
def test_a_verdict_in_words(text, expected):
    assert _verdict("4", text) == expected


def test_a_question_that_does_not_fit_is_one_sentence(ansatz, model):
    code, out, err = ansatz("ask", model, "word " * 3000, *OPTIONS)
    assert (code, out) == (2, "")
    assert "the longest prompt of the question has" in err


def test_a_question_that_fills_the_context_is_refused_without_a_number_that_nobody_gave(ansatz, model):
    code, _, err = ansatz("ask", model, "1 + 1 = 2. " * 400, "--template", "tiny")
    assert code == 2
    assert "which leaves no room for a response in the model's context of" in err
    assert "--max-response-tokens" not in err


def test_one_response_is_greedy_and_several_are_sampled(ansatz, model):
    assert ansatz("ask", model, "What is 2 + 2?", *OPTIONS) == ansatz(
        "ask", model, "What is 2 + 2?", "--temperature", 0, "--seed", 7, *OPTIONS
    )
    assert ansatz("ask", model, "What is 2 + 2?", *OPTIONS, "--samples-per-prompt", 2) == ansatz(
        "ask", model, "What is 2 + 2?", *OPTIONS, "--samples-per-prompt", 2, "--temperature", 1.0
    )


def test_a_response_can_be_read_while_it_grows(ansatz, model, monkeypatch):
    seen: list[list[int]] = []
    before = NativeSampler.generate

    def generate(self, *arguments, **how):
        tell, self.on_tokens = self.on_tokens, seen.append
        assert tell is not None
        return before(self, *arguments, **how)

    monkeypatch.setattr(NativeSampler, "generate", generate)
    assert ansatz("ask", model, "What is 2 + 2?", *OPTIONS)[0] == 0
    assert len(seen[-1]) >= 2
    assert [seen[-1][: len(ids)] for ids in seen] == seen


def test_what_is_printed_while_a_response_grows_and_after_it_is_the_response(capsys):
    for pieces, expected in (
        (["", " 1", "1 + 1", "1 + 1 \ufffd", "1 + 1 \u00bd"], "1 + 1 \u00bd is it"),
        (["1 + 1 = 2 Q"], "1 + 1"),  # a stop string ends it
    ):
        typed = _Typed()
        for piece in pieces:
            typed.show(piece)
        shown = capsys.readouterr().out + typed.take_rest(expected)
        assert shown.endswith(expected)
        assert "\ufffd" not in shown
    assert shown == "1 + 1 = 2 Q\n1 + 1"
