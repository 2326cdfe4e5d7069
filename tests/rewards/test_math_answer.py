from __future__ import annotations

import pytest

from ansatz.errors import ConfigError, DataError
from ansatz.rewards.math_answer import check_golds, math_answer
from ansatz.types import Problem


def problem(id: str, answer: str, **meta: object) -> Problem:
    return Problem(id=id, question="?", answers=(answer,), source="test", split="train", meta=meta)


def test_unreadable_golds_are_found_with_their_line_and_reason():
    with pytest.raises(DataError) as found:
        check_golds(
            [problem("a", "5"), problem("b", ""), problem("c", r"\frac{0}{0}", line=77), problem("d", "5 6"),
             problem("e", r"\frac{")]
        )  # fmt: skip
    assert str(found.value) == (
        "4 gold answers cannot be read: 'b' (line 2): empty; 'c' (line 77): division by zero; "
        "'d' (line 4): unexpected '6'; 'e' (line 5): unexpected end of the answer. Correct or remove these rows."
    )


def test_an_unreadable_gold_is_a_data_error_that_names_the_row():
    with pytest.raises(DataError, match=r"'b' \(line 2\): empty"):
        check_golds([problem("a", "5"), problem("b", "")])


def test_readable_golds_pass():
    check_golds([problem("a", "5"), problem("b", r"\text{no solution}"), problem("c", r"\frac{1}{2}")])


def test_a_wrong_option_is_a_config_error_before_the_run():
    with pytest.raises(ConfigError, match="digits = 0: it must be a whole number of 1 or more"):
        math_answer([], digits=0)
