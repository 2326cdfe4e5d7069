"""Parsing and the exact arithmetic under it. Values are worked out by hand, never by the parser."""

from __future__ import annotations

import re
import time
from fractions import Fraction
from unittest.mock import Mock

import pytest
from ansatz_verify import Reason, grammar, lexer
from ansatz_verify import values as v
from ansatz_verify.decide import decide_pair
from ansatz_verify.options import DEFAULT
from ansatz_verify.parse import parse_answer
from ansatz_verify.values import Num
from hypothesis import given, settings
from hypothesis import strategies as st


def number(text: str) -> Fraction:
    value = parse_answer(text).value
    assert isinstance(value, Num), value
    return value.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-3", Fraction(-3)),
        ("2+3*4", Fraction(14)),
        ("(2+3)4", Fraction(20)),
        ("2^3^2", Fraction(512)),
        ("-2^2", Fraction(-4)),
        (r"\frac12", Fraction(1, 2)),
        (r"\frac1{72}", Fraction(1, 72)),
        (r"3\frac{1}{4}", Fraction(13, 4)),
        ("-3 1/4", Fraction(-13, 4)),
        (r"2\frac{3}{2}", Fraction(3)),  # not proper, so a product
        ("1.5e-3", Fraction(3, 2000)),
        (r"1{,}234.5", Fraction(2469, 2)),
        (r"\binom{6}{3}", Fraction(20)),
        ("5!", Fraction(120)),
        ("7!!", Fraction(105)),
        (r"\lceil -1.5 \rceil", Fraction(-1)),
        (r"\sum_{k=1}^{4} k^2", Fraction(30)),
        (r"\prod_{k=1}^{4} k", Fraction(24)),
        (r"\gcd(12, 18)", Fraction(6)),
        (r"|{-7}|", Fraction(7)),
    ],
)
def test_rational_numbers_are_exact(text: str, value: Fraction):
    assert number(text) == value


def test_a_decimal_keeps_the_places_it_was_written_with():
    assert parse_answer("0.50").value == Num(Fraction(1, 2), 2)
    assert parse_answer(r"3.83 \times 10^{35}").value == Num(Fraction(383 * 10**33), -33)
    assert parse_answer("-0.25").value == Num(Fraction(-1, 4), 2)


def test_a_comma_groups_thousands_outside_brackets_only():
    assert number("1,234") == 1234
    pair = parse_answer("(1,234)").value
    assert isinstance(pair, v.Bracket)
    assert pair.items == (Num(Fraction(1)), Num(Fraction(234)))


@pytest.mark.parametrize(
    "text", ["", "  ", r"\frac{0}{0}", "1/0", "0^0", "nan", r"\infty-\infty", r"\frac{\infty}{\infty}"]
)
def test_what_has_no_value_says_so(text: str):
    reading = parse_answer(text)
    assert reading.undefined
    assert reading.value is None


@pytest.mark.parametrize(
    "text", ["5 6", "5..6", "(5", "5)", "{5", "5 +", "5 is", r"\unknown{5}", r"\begin{pmatrix}1", "x^", "1e999999"]
)
def test_what_cannot_be_read_says_why_and_does_not_raise(text: str):
    reading = parse_answer(text)
    assert reading.value is None
    assert reading.problem


@pytest.mark.parametrize(
    "text",
    ["(" * 5_000, "{" * 900 + "1" + "}" * 900, "-" * 1_500 + "1", "x^" * 900 + "x", r"\sqrt{" * 300 + "2" + "}" * 300],
)
def test_depth_is_bounded(text: str):
    assert parse_answer(text).value is None


@pytest.mark.parametrize("text", ["9^{9^{9}}", "99999999!", r"\binom{10^9}{5}", "10^{10^{10}}"])
def test_numbers_too_large_are_not_worked_out(text: str):
    value = parse_answer(text).value
    assert value is not None
    assert not isinstance(value, Num)


def test_a_letter_glued_to_a_number_is_a_variable_and_upright_letters_are_units():
    assert isinstance(parse_answer("5m").value, v.Product)
    assert parse_answer(r"5\text{ m}").value == v.Quantity(Num(Fraction(5)), (("m", 1),))
    assert parse_answer("5 cm").value == v.Quantity(Num(Fraction(5)), (("cm", 1),))


def test_unreduced_fractions_are_noticed():
    assert parse_answer(r"\frac{2}{4}").unreduced
    assert parse_answer("4/2").unreduced
    assert not parse_answer(r"\frac{1}{2}").unreduced


def test_words_that_doubt_are_noticed():
    assert parse_answer(r"5 \text{ or } 6").hedged
    assert parse_answer(r"\text{not } 5").hedged
    assert not parse_answer("5").hedged


@pytest.mark.parametrize(
    "text",
    [
        "5" + "!" * 1_000,
        r"\sin " * 45 + "x",
        r"\sum_{i=1}^{200}\sum_{j=1}^{200}\sum_{k=1}^{200} ijk",
        "9^{5000}" * 200,
        "+".join(rf"\frac{{1}}{{x+{n}}}" for n in range(120)),
        r"(1+\sqrt{2})^{39}" * 100,
        r"x \bmod 7 " * 150,
        r"\cup".join(f"({n},{n + 1})" for n in range(180)),
    ],
)
def test_what_grows_when_worked_out_is_bounded_in_this_process(text: str):
    begin = time.thread_time()
    for gold, answer in [("x^2+1", text), (text, "x^2+1"), (text, text + "+1")]:
        decide_pair(gold, answer, DEFAULT, lambda *_: Reason.TIMEOUT)
    assert time.thread_time() - begin < 3.0  # of this thread; hours without the limits


_IN_NUMBERS = [*"0123456789.,:;()[]{}+-/^_ e'x", "12", "345", r"\,", r"\ ", "{,}", r"\frac12", r"\dots", "...", "~"]
_IN_UNITS = ["/", "*", "k", r"\Omega", r"\mu ", " m", r"\text{km}", r"\text{s}", r"\frac{\text{m}}{\text{s}}"]
_NUMBERS = st.lists(st.sampled_from(_IN_NUMBERS), min_size=1, max_size=8).map("".join)
_AMOUNTS = st.lists(st.sampled_from(_IN_UNITS), min_size=1, max_size=3).map(lambda pieces: "5" + "".join(pieces))


@settings(max_examples=400, deadline=None)
@given(_NUMBERS | _AMOUNTS)
def test_shortcuts_for_numbers_and_units_do_not_change_what_an_answer_says(text: str):
    fast = parse_answer(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lexer, "_INTEGER", re.compile("(?!)"))
        patched.setattr(grammar.Parser, "_ends_at", lambda parser, at: False)
        assert parse_answer(text) == fast


@pytest.mark.parametrize("factors", ["xy$", "x/y*", "2x", r"\pi/x*"])
def test_thousands_of_factors_are_multiplied_once(monkeypatch, factors):
    """One by one, their list is copied for each of them, and a response of 2,000 letters takes a second."""
    counted = Mock(wraps=v.multiply)
    monkeypatch.setattr(v, "multiply", counted)
    parsed = parse_answer(factors * 200 + "z")
    assert isinstance(parsed.value, v.Product)
    assert counted.call_count < 10
