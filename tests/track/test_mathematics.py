"""Mathematics in texts is set, and nothing else that a text holds becomes part of a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("latex2mathml", reason="a package of the viewer is not installed")

from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_up import NASTY
from markupsafe import escape

from ansatz.track.mathematics import (
    MAX_FORMULAS,
    cut_before_formula,
    has_mathematics,
    set_answer,
    set_golds,
    set_mathematics,
)
from ansatz.types import joined_golds


def drop_annotations(page: str) -> str:
    """The page without the source of its formulas, which a browser does not show."""
    return re.sub("<annotation>.*?</annotation>", "", page, flags=re.DOTALL)


class Elements(HTMLParser):
    """The elements of a page and the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names, self.attributes = set[str](), set[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"so $\frac{1}{2}$ is", 'so <math display="inline"><semantics><mrow><mfrac>'),
        (r"\(x^2\)", "<msup>"),
        (r"\[\sqrt{2}\]", '<math display="block">'),
        ("$$a+b$$", '<math display="block">'),
        (r"\(\begin{pmatrix}1&2\\3&4\end{pmatrix}\)", "<mtable>"),
    ],
)
def test_what_is_between_delimiters_is_set(text: str, shown: str):
    assert has_mathematics(text)
    assert shown in set_mathematics(text)
    assert not re.search(r"[$\\]", drop_annotations(set_mathematics(text)))


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (r"\frac{1}{2}", "<mfrac>"),
        ("x^2+1", "<msup>"),
        (r"$\frac{1}{2}$", "<mfrac>"),
        (r"x=2 \text{ or } x=3", "<mtext>"),
    ],
)
def test_an_answer_is_set_without_delimiters_and_keeps_what_was_written(answer: str, shown: str):
    page = set_answer(answer)
    assert shown in page
    assert page.startswith(f'<span title="{answer}"><math')


@pytest.mark.parametrize("answer", ["12", "x^2 or 3", "5^2 metres", r"C:\a b and c", "a_1", "", "^" * 1001, "x < 2"])
def test_an_answer_in_words_or_without_anything_to_set_stays_as_it_is(answer: str):
    assert set_answer(answer) == answer.replace("<", "&lt;")


def test_each_gold_answer_is_set():
    page = set_golds(joined_golds([r"\frac{1}{2}", "0.5"]))
    assert page.endswith("</span> or 0.5")
    assert page.count("<mfrac>") == 1


@pytest.mark.parametrize(("end", "cut"), [(3, 3), (4, 4), (5, 4), (8, 4), (9, 9), (14, 10)])
def test_a_text_is_not_cut_within_a_formula(end: int, cut: int):
    assert cut_before_formula("so, $a+b$ \\(c+d\\)", end) == cut


@pytest.mark.parametrize("text", ["It costs $5 and then $6.", "a $ b $ c", "100$", r"\frac12 alone", "$x", "", "$$ $$"])
def test_prices_and_open_delimiters_stay_as_they_are(text: str):
    assert set_mathematics(text) == text


@pytest.mark.parametrize(
    "formula",
    [
        r"\href{javascript:alert(1)}{x}",
        r"\style{color:red}{x}",
        r"\class{a}{x}",
        r"\text{<b>bold</b>}",
        r"\text{<img src=x onerror=alert(1)>}",
        r"\text{<mi href='x'>a</mi>}",
        NASTY,
        "{" * 400,
        r"\sqrt{" * 150,
        r"\unknown",
        r"\frac",
        "x\x00\x1b[31m\u202ey",
        "\ud800",
        r"\text{</math><script>alert(1)</script>}",
    ],
)
def test_a_hostile_formula_is_shown_as_written_or_set_without_anything_else(formula: str):
    page = set_mathematics(f"before \\({formula}\\) after")
    assert page.startswith("before ")
    assert page.endswith(" after")
    assert_harmless(page)
    assert_harmless(set_answer(formula))
    assert_harmless(set_golds(joined_golds([formula, "1"])))


def assert_harmless(page: str) -> None:
    found = Elements(page)
    assert not found.names & {"b", "img", "script", "a", "svg", "style", "annotation-xml"}
    assert not found.attributes & {"href", "style", "class", "id", "src", "onerror", "encoding"}
    assert not re.search(r"[\x00-\x08\u202e]", page)


PIECES = [
    "$",
    "\\(",
    "\\)",
    "\\[",
    "\\]",
    "{",
    "}",
    "\\frac",
    "\\text",
    "\\href",
    "<b>",
    "&lt;",
    '"',
    "x",
    "^",
    "_",
    " ",
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
@example("\\(\\text{<mtext href='x'>a</mtext>}\\)")
def test_no_text_becomes_an_element_that_is_not_mathematics(text: str):
    assert_harmless(set_mathematics(text))
    assert_harmless(set_answer(text))


def test_only_the_first_formulas_of_a_long_text_are_set():
    page = set_mathematics(r"\(x\) " * (MAX_FORMULAS + 5))
    assert page.count("<math") == MAX_FORMULAS
    assert page.count(r"\(x\)") == 5
    assert set_mathematics(r"\(x\) " * 5, 2).count("<math") == 2


@pytest.mark.parametrize(
    "formula",
    [
        r"\phantom{a_1}",
        r"\hphantom{a_1}",
        r"\vphantom{a_1}",
        r"\color{white}{a_1}",
        r"\color{#fff} a_1",
        r"\textcolor{white}{a_1}",
        r"\colorbox{black}{a_1}",
        r"\rlap{a_1}b",
        r"\mathllap{a_1}b",
        r"\smash{a_1}",
        r"\raise 99em {a_1}",
        r"\hspace{99em}a_1",
        r"\genfrac(]{99em}{2}{a}{b}",
        "a" + "^{b" * 12 + "}" * 12,
    ],
)
def test_a_formula_that_would_hide_something_is_shown_as_written(formula: str):
    assert set_mathematics(f"${formula}$") == escape(f"${formula}$")


@pytest.mark.parametrize("formula", [r"a\kern-9em b^2", r"\hspace{-9em}a^2", r"a\!\!\!\!b^2", r"10\!,\!000^2"])
def test_negative_spaces_move_nothing_over_another_thing(formula: str):
    page = set_mathematics(f"${formula}$")
    assert '<mspace width="0em" />' in page
    assert "negative" not in page
    assert "-" not in page.partition("<annotation>")[0].replace("$", "")


@pytest.mark.parametrize(
    "formula",
    [
        r"\boxed{42}",
        r"\binom{n}{k}",
        r"a \equiv b \pmod{n}",
        r"\left(\frac{a}{b}\right)\quad\big(x^2\big)",
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        r"\begin{align*}a&=b\\c&=d\end{align*}",
        r"\begin{cases}1&x>0\\0&x\le 0\end{cases}",
        r"\hspace{1cm}a^2",
        r"1+\frac{1}{1+\frac{1}{1+\frac{1}{1+\frac{1}{2}}}}",
        r"\cancel{x}^2",
        r"\underbrace{a+b}_{2}",
    ],
)
def test_what_mathematicians_write_is_set(formula: str):
    assert "<math" in set_mathematics(f"${formula}$")
