"""Language consistency, with the real detector; mathematics and code do not count."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from ansatz.errors import ConfigError, MissingExtraError
from ansatz.rewards import language as module
from ansatz.rewards.grader import build_grader
from ansatz.rewards.language import detector, language, prose_only, windows, words

ENGLISH = "First we compute the area of the triangle, and then we subtract the area of the small square from it. "
FRENCH = "Nous calculons d'abord l'aire du triangle, puis nous en retirons l'aire du petit carré qui est dedans. "
CHINESE = "首先我们计算三角形的面积，然后减去小正方形的面积。"


@pytest.mark.parametrize(
    ("text", "target", "value"),
    [
        (ENGLISH, "en", 1.0),
        (ENGLISH, "fr", 0.0),
        (FRENCH, "fr", 1.0),
        (FRENCH, "en", 0.0),
        (CHINESE, "zh", 1.0),
        (CHINESE, "en", 0.0),
        (ENGLISH * 3 + FRENCH * 3, "en", 0.5),
    ],
)
def test_the_share_is_that_of_the_target_language(rollout, text, target, value):
    assert language([rollout(text)], target=target)[0].value == pytest.approx(value, abs=0.05)


def test_vowel_signs_and_accents_are_parts_of_words():
    assert words("यह सही है") == ["यह", "सही", "है"]
    assert words(unicodedata.normalize("NFD", "tiếng Việt")) == [
        unicodedata.normalize("NFD", word) for word in ("tiếng", "Việt")
    ]
    assert words("x = 2y, area") == ["area"]


def test_a_foreign_word_inside_a_sentence_counts_by_its_writing(rollout):
    # "we subtract the area of the square" is 7 words, 面积 two characters
    (mixed,) = language([rollout("We subtract the area of the square from the 面积 of it")])
    assert mixed.value == pytest.approx(11 / 13)


def test_mathematics_code_and_tags_are_left_out(rollout):
    text = (
        "<think>" + ENGLISH + "</think> $x = \\text{la somme des carrés}$ \\[ \\text{nous} \\] \\(le\\) "
        "```python\nprint('nous calculons la somme des carrés de tous les nombres')\n``` `la somme` "
        "\\begin{align*} la somme des carrés \\end{align*} \\boxed{\\text{la réponse}} <answer>5</answer>"
    )
    assert language([rollout(text)], target="en")[0].value == 1.0
    assert words(prose_only(text)) == words(ENGLISH)


@pytest.mark.parametrize("text", ["", "$x = 5$", r"\boxed{5}", "x = 5, y = 7"])
def test_a_response_without_words_gets_what_is_said_for_it(rollout, text):
    assert language([rollout(text)], empty=0.25)[0].value == 0.25


def test_money_is_no_mathematics():
    for text in ("It costs $5 for apples and \\$3 for pears.", "It costs $5 for apples and $3 for pears."):
        assert words(prose_only(text)) == ["It", "costs", "for", "apples", "and", "for", "pears"]


def test_windows_hold_whole_sentences_of_one_writing_system():
    made = windows(ENGLISH + "Then 面积. " + ENGLISH)
    assert [len(window) for window in made] == [20, 21, 2]
    assert made[-1] == ["面", "积"]


def test_long_hostile_text_is_read_in_time():
    for text in (
        "$" * 100_000,
        "`" * 100_000,
        r"\begin{a}" * 20_000,
        r"\boxed{" * 20_000,
        "<" * 100_000,
        r"\(" * 50_000,
    ):
        assert isinstance(prose_only(text), str)


def test_without_the_detector_the_extra_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid", None)
    monkeypatch.setattr(module, "_identifier", module._identifier.__wrapped__)
    detector.cache_clear()
    with pytest.raises(MissingExtraError, match=r"-m pip install .*py3langid"):
        build_grader({"language": {}})


@pytest.mark.parametrize("settings", [{"target": "klingon"}, {"among": ["en", "xx"]}])
def test_an_unknown_language_is_refused_before_any_work(settings):
    with pytest.raises(ConfigError, match="is unknown"):
        build_grader({"language": settings})
