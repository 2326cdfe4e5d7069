"""Rules on values: they do not depend on their order, and a second pass changes nothing."""

from __future__ import annotations

import importlib
import inspect
import random
import re
from pathlib import Path

import ansatz_verify
import pytest
from ansatz_verify import equivalent
from ansatz_verify.parse import parse_answer
from ansatz_verify.rules import RULES, in_usual_form
from hypothesis import given, settings
from latex import answers


@settings(max_examples=80, deadline=None)
@given(answers(), answers(), answers())
def test_rules_give_one_form_in_any_order_and_when_they_are_applied_twice(left: str, middle: str, right: str):
    for text in (left, f"{left}={middle}", f"({left},{middle})=({right},{left})", f"f({left})={right}"):
        value = parse_answer(text).value
        if value is None:
            continue
        form = in_usual_form(value)
        assert in_usual_form(form) == form
        rules = list(RULES.items())
        random.Random(len(text)).shuffle(rules)
        before = dict(RULES)
        RULES.clear()
        RULES.update(rules)
        try:
            assert in_usual_form(value) == form
        finally:
            RULES.clear()
            RULES.update(before)


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_short_and_says_an_example_a_near_miss_and_how_often_it_counts(rule):
    assert RULES[rule] > 0
    assert "Example:" in rule.__doc__
    assert "Near miss:" in rule.__doc__
    source = inspect.getsource(rule).replace(rule.__doc__, "")
    assert len(source.splitlines()) <= 15


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        (r"\frac{\sqrt2}{2}", r"e = \frac{1}{\sqrt 2} = \frac{\sqrt 2}{2}", True),
        ("3", r"\pi = 3", False),
        ("1, 2", "(x, y) = (1, 2)", True),
        ("1, 2", "(x, x) = (1, 2)", False),
        ("f(x) = x + 1", "f(t) = t + 1", True),
        ("f(x) = x + 1", "f(t) = t + x", False),
        ("f(x) = x + 1", "g(t) = t + 1", False),
        (r"2k\pi", r"2k\pi, k \in \mathbb{Z}", True),
        ("5", r"5, x \in \mathbb{R}", False),
    ],
)
def test_each_rule_has_its_example_and_its_near_miss(gold: str, answer: str, same: bool):
    assert bool(equivalent(gold, answer)) is same


def test_tables_hold_words_and_no_pattern_has_more_than_200_characters():
    folder = Path(ansatz_verify.__file__).parent
    modules = [importlib.import_module(f"ansatz_verify.{path.stem}") for path in folder.glob("[a-z]*.py")]
    patterns = [pattern for module in modules for pattern in patterns_in(vars(module))]
    assert len(patterns) > 50
    assert [pattern for pattern in patterns if len(pattern) > 200] == []
    assert "(?" not in (folder / "tables.py").read_text(encoding="utf-8")


def patterns_in(value: object) -> list[str]:
    """The compiled patterns that a module holds, by whatever parts they were joined from."""
    if isinstance(value, re.Pattern):
        return [value.pattern]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [pattern for part in list(parts) if part is not value for pattern in patterns_in(part)]
