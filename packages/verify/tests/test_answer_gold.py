from __future__ import annotations

import pytest
from ansatz_verify import check_golds, verify


def test_unreadable_golds_are_found_with_their_place_and_reason():
    found = check_golds(["5", "", r"\frac{0}{0}", r"\text{no solution}", "5 6", r"\frac{"])
    assert [(gold.place, gold.why) for gold in found] == [
        (2, "empty"),
        (3, "division by zero"),
        (5, "unexpected '6'"),
        (6, "unexpected end of the answer"),
    ]


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
    assert check_golds([gold]) == []
    assert verify(gold, right).correct
    assert not verify(gold, wrong).correct
