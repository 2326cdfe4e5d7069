"""Program of thought: the program's result is graded as mathematics."""

from __future__ import annotations

import pytest

from ansatz.errors import ConfigError
from ansatz.rewards import sandbox
from ansatz.rewards.code_blocks import last_program
from ansatz.rewards.grader import build_grader
from ansatz.rewards.program import program
from ansatz.types import Reason


@pytest.fixture(scope="module", autouse=True)
def _needs_a_sandbox():
    try:
        sandbox.require("full")
    except ConfigError as error:
        pytest.skip(str(error))


def block(source: str) -> str:
    return f"I compute it.\n```python\n{source}\n```\nDone."


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("```python\na\n```\nand\n```py\nb\n```", "b\n"),
        ("```\na\n```", "a\n"),
        ("```python\na\n```\nOutput:\n```\n5\n```", "a\n"),
        ("1. So:\n   ```python\n   if a:\n     b\n   ```\n2. Done.", "if a:\n  b\n"),
        ("```python\na\n```\n```output\n5\n```", "a\n"),
        ("```python\na", None),
        ("```python\na\n``` and then ```python\nb", "a\n"),
        ("<think>```python\na\n```</think> so 5", None),
        ("<think>hm</think>```python\na\n```", "a\n"),
        ("<think>```python\na\n```", None),
        ("a", None),
    ],
)
def test_the_program_is_the_last_closed_block_after_the_thought(response, expected):
    assert last_program(response) == expected


def test_what_is_printed_last_is_the_answer(rollout):
    texts = [
        block("print('try', 6)\nprint(2 + 3)\nprint()"),
        block("from fractions import Fraction\nprint(Fraction(10, 2))"),
        block("print(2 + 4)"),
        block("print()"),
        block("print(5"),
        "The answer is 5.",
    ]
    judged = program([rollout(text) for text in texts], correct=5.0, wrong=-5.0)
    assert [j.value for j in judged] == [5.0, 5.0, -5.0, -5.0, -5.0, -5.0]
    reasons = [Reason.EQUAL, Reason.EQUAL, Reason.DIFFERENT, Reason.NO_ANSWER, Reason.UNPARSED, Reason.NO_ANSWER]
    assert [j.verdict.reason for j in judged] == reasons
    assert judged[2].verdict.extracted == "6"


def test_a_printed_question_is_not_its_answer(rollout):
    group = [rollout(block("print('17*23')"), gold="391"), rollout(block("print(17*23)"), gold="391")]
    assert [j.value for j in program(group)] == [0.0, 1.0]


def test_the_variable_answer_may_be_asked_for_instead(rollout):
    group = [rollout(block("answer = 5\nprint(6)")), rollout(block("print(5)"))]
    assert [j.value for j in program(group, read="answer")] == [1.0, 0.0]


def test_a_program_without_end_is_a_timeout_and_not_the_graders_end(rollout):
    with build_grader({"program": {"timeout_s": 0.3}}) as grader:
        slow, quick = grader.score([rollout(block("while True: pass")), rollout(block("print(5)"))])
    assert slow.score.verdict.reason is Reason.TIMEOUT
    assert quick.score.value == 1.0


def test_a_program_that_several_responses_have_in_common_runs_once_for_each_answer(rollout, monkeypatch):
    sources, run = list[str](), sandbox.run
    monkeypatch.setattr(sandbox, "run", lambda source, **settings: (sources.append(source), run(source, **settings))[1])
    same, other = block("print(5)"), "```python\nprint(6)\n```"
    group = [rollout(same), rollout(other), rollout(same + " Really."), rollout(same, gold="6"), rollout("5")]
    assert [j.value for j in program(group)] == [1.0, 0.0, 1.0, 0.0, 0.0]
    assert sorted(sources) == ["print(5)\n", "print(5)\n", "print(6)\n"]


def test_a_sandbox_that_fails_is_the_graders_crash_not_a_wrong_answer(rollout, monkeypatch):
    broken = sandbox.ProgramRun(ended=sandbox.Ended.NEVER_RAN, stdout="5", stderr="")
    monkeypatch.setattr(sandbox, "run", lambda source, **settings: broken)
    assert program([rollout(block("print(5)"))])[0].verdict.reason is Reason.CRASHED


@pytest.mark.parametrize("settings", [{"timeout_s": 0}, {"memory_mb": 8}, {"isolation": "none"}, {"parallel": 0}])
def test_a_wrong_recipe_is_refused_before_any_work(settings):
    with pytest.raises(ConfigError):
        build_grader({"program": settings})


@pytest.mark.parametrize(
    "printed", ["4\\x002", "4\\x1c2", "43\\x082", "7\\r42", "\\x1b[2K42", "42\\x07", "4\\u200b2", "24\\u202e"]
)
def test_a_line_with_control_characters_is_no_value(rollout, printed: str):
    (judged,) = program([rollout(block(f"print('{printed}')"), gold="42")])
    assert judged.value == 0.0
    assert judged.verdict.reason in (Reason.UNPARSED, Reason.DIFFERENT)


@pytest.mark.parametrize("printed", ["42\\r", "\\t42 ", "\\x1b[2K\\n42"])
def test_white_space_around_a_line_and_what_other_lines_hold_do_not_count(rollout, printed: str):
    (judged,) = program([rollout(block(f"print('{printed}')"), gold="42")])
    assert judged.value == 1.0


@pytest.mark.parametrize(
    ("gold", "source", "tolerance", "right"),
    [
        ("3.3", "3 * 1.1", 1e-12, True),
        ("0.3", "0.1 + 0.2", 1e-12, True),
        ("2/3", "2 / 3", 1e-12, True),
        (r"\sqrt{2}", "2 ** 0.5", 1e-12, True),
        (r"3.3\text{ cm}", "3 * 1.1", 1e-12, True),
        ("0", "0.1 + 0.2 - 0.3", 1e-12, True),
        ("0", "1e-6", 1e-12, False),
        ("2/3", "0.66667", 1e-4, True),
        ("3.3", "3 * 1.1", 0.0, False),
        ("2/3", "round(2 / 3, 4)", 1e-12, False),
        (r"\pi", "3.14159", 1e-12, False),
        ("1099511627776", "2.0 ** 40 - 1", 1e-12, False),
        ("x", "0.5", 1e-12, False),
    ],
)
def test_a_printed_float_equals_a_gold_up_to_rounding_errors(rollout, gold, source, tolerance, right):
    (judged,) = program([rollout(block(f"print({source})"), gold=gold)], tolerance=tolerance)
    assert judged.verdict.correct is right
