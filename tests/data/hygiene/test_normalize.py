from __future__ import annotations

import pytest

from ansatz.data.hygiene.normalize import figures_of, ngrams, normalized_words, same_answer, signature


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Find $x + 1$.", "find x+1"),
        (r"\dfrac{1}{2}", r"\frac12"),
        (r"\left( a \right)", "(a)"),
        ("a \\, b", "A b"),
        (r"x^{2}", "x^2"),
        ("\uff11", "1"),
    ],
)
def test_typesetting_does_not_change_the_signature(left: str, right: str) -> None:
    assert signature(left) == signature(right)


@pytest.mark.parametrize(
    ("left", "right"), [("x+1", "x-1"), ("8/(4/2)", "8/4/2"), ("x^{10}", "x^10"), ("0.5", "05"), ("2<x", "2>x")]
)
def test_signs_brackets_and_points_change_the_signature(left: str, right: str) -> None:
    assert signature(left) != signature(right)


def test_words_numbers_and_ngrams() -> None:
    assert normalized_words(r"Find $\left(x_1\right)^2$, Ann's AGE!") == ["find", "x", "1", "2", "ann", "s", "age"]
    assert figures_of("3.5 + 12 = 3.5") == ("+", "12", "3.5", "3.5", "=")
    assert ngrams(["a", "b", "c"], 2) == ["a b", "b c"]
    assert ngrams(["a", "b", "c"], 4) == []


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("$ 12 $.", "12", True),
        (r"\mathbf{2340}", "2340", True),
        (r"\dfrac{1}{2}", r"\frac{1}{2}", True),
        (r"\frac{1}{23}", r"\frac{12}{3}", False),
        ("1", "-1", False),
    ],
)
def test_same_answer(left: str, right: str, same: bool) -> None:
    assert same_answer(left, right) is same
