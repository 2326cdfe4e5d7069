"""Mathematics in texts is set, and nothing else that a text holds becomes part of a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

for _package in ("latex2mathml", "markupsafe"):
    pytest.importorskip(_package, reason="the extra ui is not installed")

from hypothesis import example, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from made_up import NASTY  # noqa: E402

from ansatz.ui.mathematics import MAX_FORMULAS, has_mathematics, set_mathematics  # noqa: E402


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
        (r"so $\frac{1}{2}$ is", 'so <math display="inline"><mrow><mfrac>'),
        (r"\(x^2\)", "<msup>"),
        (r"\[\sqrt{2}\]", '<math display="block">'),
        ("$$a+b$$", '<math display="block">'),
        (r"\(\begin{pmatrix}1&2\\3&4\end{pmatrix}\)", "<mtable>"),
    ],
)
def test_what_is_between_delimiters_is_set(text: str, shown: str):
    assert has_mathematics(text)
    assert shown in set_mathematics(text)
    assert not re.search(r"[$\\]", set_mathematics(text))


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


def assert_harmless(page: str) -> None:
    found = Elements(page)
    assert not found.names & {"b", "img", "script", "a", "svg", "style", "annotation-xml", "semantics"}
    assert not found.attributes & {"href", "style", "class", "id", "src", "onerror"}
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


def test_only_the_first_formulas_of_a_long_text_are_set():
    page = set_mathematics(r"\(x\) " * (MAX_FORMULAS + 5))
    assert page.count("<math") == MAX_FORMULAS
    assert page.count(r"\(x\)") == 5
