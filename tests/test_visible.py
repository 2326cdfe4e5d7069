from __future__ import annotations

import ast
import csv
import io
from pathlib import Path

import pytest

from ansatz.visible import csv_value, say, visible, write_csv


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


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "=",
        "-",
        "-x",
        "\uff1d1+1",
        "+-1",
        "-5=A1",
    ],
)
def test_a_text_that_a_spreadsheet_would_compute_gets_an_apostrophe(text):
    assert csv_value(text) == f"'{text}"


@pytest.mark.parametrize(
    "value", [-5, 1.5, True, None, "", "-5", "+3", "-.5", "-1e-3", "-2.", "a=1", "1-2", "'=1", " =1"]
)
def test_numbers_and_other_texts_stay_in_a_table(value):
    assert csv_value(value) == value


def test_a_table_has_the_names_of_its_columns_and_nothing_for_what_a_row_lacks():
    out = io.StringIO()
    write_csv(out, ["a", "=b"], [{"a": "=1", "=b": -1}, {"a": None, "more": 1}])
    assert list(csv.reader(io.StringIO(out.getvalue()))) == [["a", "'=b"], ["'=1", "-1"], ["", ""]]


def test_ends_of_lines_in_a_cell_stay_in_it():
    out = io.StringIO()
    write_csv(out, ["a", "b"], [{"a": "1\r2", "b": "3\n4"}])
    assert list(csv.reader(io.StringIO(out.getvalue(), newline=""))) == [["a", "b"], ["1\r2", "3\n4"]]


PRINTS = {
    "visible": "the one place",
    "cli.answer_viewer": "JSON for a program",
    "cli.responses": "a line of numbers that is drawn again",
    "cli.rollouts": "JSON for a program",
    "cli.score": "JSON for a program",
    "process": "a sentence before the process ends",
    "rewards.sandbox_child": "the output of a program, in the sandbox",
}
"""Modules that print otherwise than by `say` and `SafeConsole`, and what."""
CONSOLES = {"track.console", "cli.doctor"}
"""Modules that make a console of rich; the second one makes visible what it prints."""


def test_everything_else_is_printed_with_visible_control_characters():
    package = Path(say.__code__.co_filename).parent
    calls = {
        (".".join(path.relative_to(package).with_suffix("").parts), ast.unparse(node.func))
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }
    printing = (
        "print",
        "typer.echo",
        "typer.secho",
        "click.echo",
        "sys.stdout.write",
        "sys.stderr.write",
        "rich.print",
    )
    assert {module for module, name in calls if name in printing} == PRINTS.keys()
    assert {module for module, name in calls if name in ("Console", "rich.console.Console")} <= CONSOLES
