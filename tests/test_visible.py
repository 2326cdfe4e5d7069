from __future__ import annotations

import pytest

from ansatz.visible import say, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),  # the one-character form of the same
        ("first\rsecond", "first\\x0dsecond"),
        ("a\x08b\x07", "a\\x08b\\x07"),
        ("\u202e21\u2066", "\\u202e21\\u2066"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("caf\u00e9 \u2265 \U0001f600", "caf\u00e9 \u2265 \U0001f600"),
    ],
)
def test_control_characters_are_shown_and_all_others_stay(text, shown):
    assert visible(text) == shown


def test_what_is_said_is_printed_like_print(capsys):
    say("a\x1b", 3, end="!\n")
    assert capsys.readouterr().out == "a\\x1b 3!\n"
