from __future__ import annotations

import pytest

from ansatz.data.hygiene.normalize import (
    figures_of,
    ngrams,
    normalized_words,
    numbers_of,
    same_answer,
    signature,
    split_key,
)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Find $x + 1$.", "find x+1"),
        (r"\dfrac{1}{2}", r"\frac12"),
        (r"\left( a \right)", "(a)"),
        ("a \\, b", "A b"),
        (r"x^{2}", "x^2"),
        ("\uff11", "1"),
        ("\u00bd", "1/2"),
        ("f'(x)", "f\u2032(x)"),
        ("Ann's 'good' pen 'A'", "Ann\u2019s \u201cgood\u201d pen \u201cA\u201d"),
        ("'A' is ('B') or `C'", "A is (B) or C"),
        (r"Call ``A'' the ``area $f(x)$'' of \(B\)'", r"Call A the area $f(x)$ of \(B\)"),
    ],
)
def test_typesetting_does_not_change_the_signature(left: str, right: str) -> None:
    assert signature(left) == signature(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("x+1", "x-1"),
        ("8/(4/2)", "8/4/2"),
        ("x^{10}", "x^10"),
        ("0.5", "05"),
        ("2<x", "2>x"),
        ("find f'(2)", "find f(2)"),
        ("find f''(2)", "find f'(2)"),
        ("``smooth'' f''g'", "``smooth'' f''g"),
        ("P' and Q'", "P and Q"),
        (r"$(fg)'$", "$(fg)$"),
        (r"$\theta'$", r"$\theta$"),
        ("A \u222a B", "A \u2229 B"),
        ("3 \u00b1 2", "3 \u00f7 2"),
        ("\u230ax\u230b", "\u2308x\u2309"),
    ],
)
def test_signs_brackets_and_points_change_the_signature(left: str, right: str) -> None:
    assert signature(left) != signature(right)


def test_the_key_of_a_split_stays_as_it_was_before_signs_and_characters_counted() -> None:
    asked = "\u6c42\u503c $f'(x)$, A \u222a B, \u2220C \u2192 2 \u00b1 \\frac12 \u2264 \u221a3"
    assert split_key(asked) == "\u6c42\u503c f ( x ) a b c 2 frac 1 2 le sqrt 3"


def test_words_numbers_and_ngrams() -> None:
    assert normalized_words(r"Find $\left(x_1\right)^2$, Ann's AGE!") == ["find", "x", "1", "2", "ann", "s", "age"]
    assert normalized_words("\u67093\u4e2a\u30ea\u30f3\u30b4\u3002") == ["\u6709", "3", "\u4e2a", *"\u30ea\u30f3\u30b4"]
    assert figures_of("3.5 + 12 = 3.5") == ("+", "12", "3.5", "3.5", "=")
    assert figures_of("Ann's f'(2) \u222a 3") == ("2", "3", "cup", "\u2032")
    assert figures_of("A \u222a B") == figures_of(r"A \cup B") != figures_of("A \u2229 B")
    assert figures_of("a cup of 2 \u00f7 3") == figures_of(r"a mug of 2 \div 3") != figures_of(r"a cup of 2 \pm 3")
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


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (r"Find $\dfrac{1}{2}+x$.", r"Find \(\frac12 + x\)"),
        (r"if $x\leq 3$", r"if $x \le 3$"),
        (r"$x \geqslant 2$", "x \u2265 2"),
        (r"$3\cdot 4$", r"$3 \times 4$"),
        (r"5 \text{ cm}", "5 cm"),
        ("1{,}000", "1,000"),
        ("1,000", "1000"),
        (r"$45^{\circ}$", "45\u00b0"),
        (r"\[x=1\]", "$$x=1$$"),
        (r"\sqrt{2}", r"\sqrt 2"),
        (r"a_1,\ldots,a_n", r"a_{1}, \dots, a_{n}"),
        ("3 \u2212 2", "3 - 2"),
        (r"x \neq 0", r"x\ne0"),
        (r"\{1,2\}", r"\lbrace 1,2 \rbrace"),
        (r"\lvert x\rvert", "|x|"),
        (r"\frac{a}{b}", r"\frac a b"),
        (r"\binom{5}{2}", r"\dbinom{5}{2}"),
        ("\u2220ABC = 90", r"\angle ABC = 90"),
        ("x \u2208 A\u222aB\u2229C", r"x \in A \cup B \cap C"),
        ("x\u21920, 3\u00b12\u00f75", r"x \rightarrow 0, 3 \pm 2 \div 5"),
    ],
)
def test_latex_variants_of_one_formula_have_one_signature(left: str, right: str) -> None:
    assert signature(left) == signature(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [(r"\frac{1}{23}", r"\frac{12}{3}"), (r"x\le 2", r"x\ge 2"), ("1000", "10000"), (r"x^{10}", "x^1 0")],
)
def test_different_formulas_have_different_signatures(left: str, right: str) -> None:
    assert signature(left) != signature(right)


def test_numbers_are_those_in_digits_in_order() -> None:
    assert numbers_of(r"1{,}000 and $\frac{2}{3.5}$, x_1, three") == ["1000", "2", "3.5", "1"]
