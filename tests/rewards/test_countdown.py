"""Countdown: our own parser, exact fractions, each number once."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from ansatz.errors import DataError
from ansatz.rewards.countdown import NotAnExpression, check_golds, countdown, read, solves
from ansatz.types import Reason

DATA = Path(__file__).parents[3] / "shared" / "data" / "countdown"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", Fraction(7)),
        ("(1 + 2) * 3", Fraction(9)),
        ("7 - 3 - 2", Fraction(2)),
        ("8 / 4 / 2", Fraction(1)),
        ("1/3*3", Fraction(1)),
        ("-3 + 5", Fraction(2)),
        ("2*-3", Fraction(-6)),
        (r"(2 \times 3) \div 4", Fraction(3, 2)),
        ("2×3−[4·5]", Fraction(-14)),
        (r"\(2 \times 3\)", Fraction(6)),
        (r"\[\dfrac{\frac{6}{2}}{3} \; + \ \tfrac{2+4}{4}\]", Fraction(5, 2)),
        ("1 / (2 - 2)", None),
        ("0 * (1 / 0)", None),
    ],
)
def test_expressions_have_their_exact_value(text, value):
    assert read(text).value == value


@pytest.mark.parametrize(
    "text",
    ["", "2 +", "2 3", "(2", "2)", "2 ** 3", "2 // 3", "x + 1", "2^3", "1.5", "2(3)", "__import__('os')", "abs(3)",
     "9" * 16, "(" * 60 + "1" + ")" * 60, "-" * 60 + "1", "1+" * 600 + "1", "5 = 5 = 5", r"\frac12", "١ + 2",
     r"4\ 2", r"4\(2\)", r"3\frac{1}{2}", r"\frac{1}{}"],
)  # fmt: skip
def test_what_is_no_arithmetic_expression_is_unreadable(text):
    with pytest.raises(NotAnExpression):
        solves(text, [1, 2], 5)


@pytest.mark.parametrize(
    ("answer", "use_all", "right"),
    [
        ("44 + 19 + 35", True, True),
        ("44 + (19 + 35) = 98", True, True),
        (r"\(44 + 19 + 35 = 98\)", True, True),
        (r"\frac{44 + 19 + 35}{1}", True, False),
        ("44 + (19 + 35) = 97", True, False),
        ("44 + 19 + 35 = 44 + 19 + 35", True, False),
        ("98", True, False),
        ("98", False, False),
        ("44 + 19 + 35 + 35 - 35", True, False),
        ("44 + 19 + 35 * 1", False, False),
        ("44 + 54", False, False),
        ("4419 / 35", True, False),
        ("44 - 19 + 35", True, False),
    ],
)
def test_the_numbers_are_those_given_and_the_value_is_the_target(answer, use_all, right):
    assert solves(answer, [44, 19, 35], 98, use_all=use_all) is right


def test_a_number_may_be_left_out_only_where_that_is_allowed():
    assert not solves("60 + 40", [60, 40, 7], 100)
    assert solves("60 + 40", [60, 40, 7], 100, use_all=False)
    assert solves("7 * 7", [7, 7], 49)
    assert not solves("7 * 7", [7, 3], 49, use_all=False)


def test_the_reward_pays_for_solving_and_if_asked_for_trying(rollout):
    meta = {"nums": [44, 19, 35], "target": 98}
    texts = ["<answer>44 + 19 + 35</answer>", "<answer>44 + 19</answer>", "<answer>I give up</answer>", "98"]
    judged = countdown([rollout(text, meta=meta) for text in texts], correct=5.0, wrong=-1.0, readable=0.1)
    assert [j.value for j in judged] == [5.0, 0.1, -1.0, -1.0]
    reasons = [j.verdict.reason for j in judged]
    assert reasons == [Reason.EQUAL, Reason.DIFFERENT, Reason.UNPARSED, Reason.NO_ANSWER]
    assert judged[0].verdict.extracted == "44 + 19 + 35"
    plain = countdown([rollout(texts[1], meta=meta)], wrong=-1.0)
    assert plain[0].value == -1.0
    assert countdown([rollout(texts[1], meta=meta)], wrong=-1.0, readable=0.0)[0].value == 0.0


@pytest.mark.parametrize(
    "meta", [{}, {"nums": [1, 2]}, {"nums": [], "target": 1}, {"nums": "12", "target": 3}, {"nums": [1.5], "target": 1}]
)
def test_a_problem_without_numbers_or_target_is_named(rollout, meta):
    bad = rollout("", problem="p9", meta=meta)
    with pytest.raises(DataError, match=r"'p9'.*nums"):
        countdown([bad])
    with pytest.raises(DataError, match=r"'p9'.*nums"):
        check_golds([rollout("", meta={"nums": [1], "target": 1}).prompt.problem, bad.prompt.problem])


def test_every_reference_of_the_data_solves_and_with_another_target_none_does():
    if not DATA.is_dir():
        pytest.skip("the shared Countdown data are not beside this checkout")
    rows = [json.loads(line) for line in (DATA / "test.jsonl").read_text().splitlines()]
    assert len(rows) == 1024
    assert all(solves(row["answer"], row["nums"], row["target"]) for row in rows)
    assert not any(solves(row["answer"], row["nums"], row["target"] + 1) for row in rows)
    assert not any(solves(row["answer"], row["nums"][1:], row["target"]) for row in rows)
