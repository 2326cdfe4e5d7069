from __future__ import annotations

import pytest

from ansatz.errors import DataError
from ansatz.rewards.math_answer import verify
from ansatz.rewards.math_answer.gold import check_golds, unreadable_golds
from ansatz.types import Problem


def problem(id: str, answer: str, **meta: object) -> Problem:
    return Problem(id=id, question="?", answer=answer, source="test", split="train", meta=meta)


def test_unreadable_golds_are_found_with_their_line_and_reason():
    found = unreadable_golds(
        [problem("a", "5"), problem("b", ""), problem("c", r"\frac{0}{0}", line=77), problem("d", "5 6"),
         problem("e", r"\frac{")]
    )  # fmt: skip
    assert [(gold.id, gold.line) for gold in found] == [("b", 2), ("c", 77), ("d", 4), ("e", 5)]
    assert [gold.why for gold in found] == [
        "empty",
        "division by zero",
        "unexpected '6'",
        "unexpected end of the answer",
    ]


def test_an_unreadable_gold_is_a_data_error_that_names_the_row():
    with pytest.raises(DataError, match=r"'b' \(line 2\): empty"):
        check_golds([problem("a", "5"), problem("b", "")])


def test_readable_golds_pass():
    assert unreadable_golds([problem("a", "5"), problem("b", r"\text{no solution}")]) == []
    check_golds([problem("a", r"\frac{1}{2}")])


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("-37_8", r"\boxed{-37_{8}}", r"\boxed{37_8}"),
        (r"\begin{pmatrix} 1 & -1 \\ 1 & \phantom -1 \end{pmatrix}", r"\boxed{\begin{pmatrix}1&-1\\1&1\end{pmatrix}}",
         r"\boxed{\begin{pmatrix}1&-1\\1&-1\end{pmatrix}}"),
        (r"5\phantom{00}", r"\boxed{5}", r"\boxed{500}"),
    ],
)  # fmt: skip
def test_golds_of_math_that_could_not_be_read(gold: str, right: str, wrong: str) -> None:
    """Lines 5,479 and 6,787 of MATH's training file: a negative number in base 8, and a sign that is not seen."""
    assert unreadable_golds([problem("p", gold)]) == []
    assert verify(gold, right).correct
    assert not verify(gold, wrong).correct
