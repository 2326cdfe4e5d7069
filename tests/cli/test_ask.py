from __future__ import annotations

import pytest

from ansatz.cli.ask import _verdict

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
