"""The filter language: what is read, what a row is tested with, and what an error says."""

from __future__ import annotations

from typing import Any

import pytest

from ansatz.track.filters import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    Compare,
    FilterError,
    Percentile,
    check_sort,
    compile_predicate,
    find_percentile,
    parse_filter,
    resolve_percentiles,
    sort_rows,
)
from ansatz.track.rollout_table import KINDS

ROWS: list[dict[str, Any]] = [
    {"id": "a", "correct": True, "truncated": True, "tokens": 10, "reason": "equal", "level": "3", "advantage": -1.5},
    {"id": "b", "correct": False, "truncated": True, "tokens": 20, "reason": "hedged", "level": "3", "advantage": None},
    {"id": "c", "correct": True, "truncated": False, "tokens": 30, "reason": "equal", "level": "4", "advantage": 2.0},
    {"id": "d", "correct": False, "truncated": False, "tokens": 40, "reason": "crashed", "level": "", "advantage": 0.5},
]
for _number, _row in enumerate(ROWS):
    _row |= {"step": 10 * _number, "text": f'step {_number}: wait, let me "check"', "parts": {"length": _number / 4}}
    _row |= {"group.correct": _number, "group.size": 4, "extracted": None if _number else "12"}


def select(text: str) -> str:
    query = parse_filter(text, KINDS, graders=("last_number",))
    tree = resolve_percentiles(query.tree, lambda p: find_percentile([row[p.field] for row in ROWS], p.percent))
    keeps = compile_predicate(tree, grade=lambda row, mode: row["id"] in "ab")
    return "".join(row["id"] for row in sort_rows(filter(keeps, ROWS), query.sort))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "abcd"),
        ("correct", "ac"),
        ("correct and truncated", "a"),
        ("correct or truncated", "abc"),
        ("not correct and truncated", "b"),
        ("not (correct and truncated)", "bcd"),
        ("correct or truncated and tokens > 15", "abc"),
        ("tokens>=20 and tokens<40", "bc"),
        ("tokens 20..30", "bc"),
        ("step -5..10", "ab"),
        ("level = 3", "ab"),
        ("level != 3", "cd"),
        ("reason in (hedged, crashed)", "bd"),
        ("tokens in (10, 40)", "ad"),
        ('reason = "equal"', "ac"),
        ("reason ~ ^e", "ac"),
        ('text ~ "step [12]"', "bc"),
        ('"wait, let me" and step > 5', "bcd"),
        ('"let me \\"check\\""', "abcd"),
        ("wait", "abcd"),
        ("Wait", ""),
        ("abs(advantage) > 1", "ac"),
        ("abs(advantage) in (0.5, 1.5)", "ad"),
        ("advantage < 1", "ad"),
        ("not advantage < 1", "bc"),
        ("extracted != 13", "a"),
        ("tokens < p50(tokens)", "ab"),
        ("tokens <= p0(tokens)", "a"),
        ("parts.length >= 0.5", "cd"),
        ("parts.length 0.2..0.5", "bc"),
        ("parts.other >= 0", ""),
        ("group.correct = group.size - 1", "d"),
        ("group.correct = group.size -1", "d"),
        ("group.size > group.correct + 2", "ab"),
        ("other(last_number) and not correct", "b"),
        ("sort:-tokens correct", "ca"),
        ("sort:level", "dabc"),
        ("sort:advantage", "adcb"),
    ],
)
def test_a_filter_selects(text: str, found: str):
    assert select(text) == found


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("correct and trunctaed", 12, "'trunctaed' is not a field; did you mean 'truncated'?"),
        ("corect = 3", 0, "did you mean 'correct'"),
        ("tokens", 0, "tokens is a number; expected a comparison"),
        ("not parts.length", 4, "parts.length is a number; expected a comparison"),
        ("tokens > and", 9, "found 'and'; expected a number"),
        ("tokens >", 8, "ends here; expected a number"),
        ("tokens > abc", 9, "'abc' is not a field"),
        ("tokens > reason", 9, "found 'reason'; expected a number"),
        ("reason > equal", 7, "reason is a text; expected =, !=, in or ~"),
        ("level 3..4", 6, "found '3'; level is a text; expected =, !=, in or ~"),
        ("correct = true", 0, "correct is a flag; write it alone"),
        ("abs(reason) = 3", 4, "reason is a text"),
        ("tokens ~ 3", 9, "tokens is a number; ~ is for texts"),
        ('text ~ "("', 7, "not a regular expression"),
        ("(correct", 8, "ends here; expected ')'"),
        ("correct truncated", 8, "expected and, or, or the end"),
        ('correct and "wait', 12, "without a second one"),
        ("reason in (hedged", 17, "expected ')'"),
        ("other(judge)", 6, "expected one of last_number"),
        ("tokens 3 and correct", 9, "found 'and'; expected '..'"),
        ("sort:-reward correct sort:lenght", 21, "'lenght' is not a field"),
        ("tokens < p5(reason)", 12, "expected a number or a field"),
        ("= 3", 0, "expected a field, a flag or a text"),
        ("tokens > 1e999", 9, "expected a number"),
        ("not " * (MAX_DEPTH + 1) + "correct", 4 * MAX_DEPTH, "within each other"),
        ("x" * (MAX_CHARACTERS + 1), MAX_CHARACTERS, "at most"),
    ],
)
def test_an_error_names_the_place_and_what_was_expected(text: str, position: int, words: str):
    with pytest.raises(FilterError, match=f"character {position + 1}: ") as caught:
        parse_filter(text, KINDS, graders=("last_number",))
    assert caught.value.position == position
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("parts.unit = 1", 0),
        ("abs(parts.unit) > 0", 4),
        ("step > parts.unit + 1", 7),
        ("step < p5(parts.unit)", 10),
        ("sort:-parts.unit", 0),
    ],
)
def test_a_reward_that_no_response_has_is_refused_wherever_it_stands(text: str, position: int):
    parse_filter(text, KINDS, parts=lambda: {"unit", "math_answer"})
    with pytest.raises(FilterError, match="no response has the reward 'unit'; the rewards are math, units") as caught:
        parse_filter(text, KINDS, parts=lambda: {"units", "math"})
    assert caught.value.position == position
    with pytest.raises(FilterError, match="no response has the reward 'unit'; none has a reward"):
        check_sort(["parts.unit"], KINDS, parts=list)


def test_a_percentile_of_nothing_selects_nothing():
    tree = resolve_percentiles(parse_filter("tokens > p5(advantage) or correct", KINDS).tree, lambda wanted: None)
    assert [row["id"] for row in filter(compile_predicate(tree), ROWS)] == ["a", "c"]


def test_a_percentile_is_interpolated_between_its_neighbours():
    assert [find_percentile([4, None, 1, 2], percent) for percent in (0, 25, 50, 100)] == [1, 1.5, 2, 4]
    assert parse_filter("tokens < p5(tokens)", KINDS).tree == Compare("tokens", "<", Percentile("tokens", 5))


def test_a_sort_by_several_fields_is_checked():
    assert check_sort(["-tokens", "parts.length"], KINDS) == ("-tokens", "parts.length")
    with pytest.raises(FilterError, match="did you mean 'tokens'"):
        check_sort(["-tokns"], KINDS)
