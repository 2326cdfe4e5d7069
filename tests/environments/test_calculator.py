from __future__ import annotations

import pytest

from ansatz.environments.calculator import CalculationError, calculate, calculator


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("347*582", "201954"),
        ("2 + 3 * (4 - 1)", "11"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("1/8", "0.125"),
        ("1/3", "1/3"),
        ("-1/400", "-0.0025"),
        ("0.1 + 0.2", "0.3"),
        ("0.12345678901234567891 * 10^20", "12345678901234567891"),
        ("1_0.5e-1 + .5 + 2.", "3.55"),
        ("2^10", "1024"),
        ("2**-2", "0.25"),
        ("99999999999999999999 * 99999999999999999999", "9999999999999999999800000000000000000001"),
    ],
)
def test_values_are_exact(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1/0", "division by zero"),
        ("0**-1", "division by zero"),
        ("__import__('os').getcwd()", "not an arithmetic expression"),
        ("'a'*9", "not an arithmetic expression"),
        ("2 2", "not an arithmetic expression"),
        ("1e400", "too large"),
        ("1e-999999999", "too large"),
        ("", "not an arithmetic expression"),
        ("\0", "not an arithmetic expression"),
        ("9**9**9", "too large"),
        ("2**0.5", "not a whole number"),
        ("(" * 300 + "1" + ")" * 300, "not an arithmetic expression"),
        ("1+" * 500 + "1", "too long"),
    ],
)
def test_what_cannot_be_computed_is_said_in_words(expression: str, reason: str) -> None:
    with pytest.raises(CalculationError, match=reason):
        calculate(expression)


def test_a_call_is_answered_in_tags_and_a_turn_without_one_is_the_last() -> None:
    environment = calculator()
    assert environment.turn_ends == ("</calc>",)
    assert environment.step("12 <calc>1+1</calc>, then <calc>347*582</calc>") == "201954"
    assert environment.step("<calc>1/0</calc>") == "error: division by zero"
    assert environment.step("so \\boxed{4}") is None
    assert environment.step("1+1</calc>") is None
    assert environment.show("7") == "<result>7</result>\n"
