"""Habits of prose are counted in docstrings, and only there."""

import ast

import pytest

from tools.docstring_words import count_habits, docstrings

TEXT = """Return what is kept: the mask and that of a model.

mask_T: tokens to which a loss applies. Those of a prompt have none, and what a model has is Kept: One.
"""


def test_each_habit_is_counted_with_all_words():
    counts = {"words": 32, "that of": 2, "of which": 1, "what": 2, "has": 2, "label": 2}
    assert count_habits(TEXT) == counts


@pytest.mark.parametrize("word", ["that often", "whichever", "for a witch", "somewhat", "haste", "at 10:30", "What: A"])
def test_a_word_that_only_resembles_a_habit_is_not_counted(word):
    counts = count_habits(word)
    assert counts["words"] == len(word.split())
    assert sum(counts.values()) - counts["words"] == word.lower().startswith("what")


def test_strings_of_their_own_are_docstrings_and_other_strings_are_not():
    source = '"""A module."""\nX = "a value"\n"""A constant."""\ndef f():\n    """Return it."""\n    return "it"\n'
    assert sorted(docstrings(ast.parse(source))) == ["A constant.", "A module.", "Return it."]
