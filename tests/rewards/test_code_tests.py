"""Test cases for code: honest programs pass, and the known ways to cheat a test do not."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from ansatz.errors import ConfigError, DataError
from ansatz.rewards import sandbox
from ansatz.rewards.code_tests import check_golds, code_tests, same_output
from ansatz.rewards.plain_calls import Peer, Refused
from ansatz.types import Reason

DOUBLE = [{"stdin": "2\n", "stdout": "4\n"}, {"stdin": "-3\n", "stdout": "-6"}]
SQUARE = ["assert f(2) == 4", "assert 9 == f(3)", "assert f(0) == 0"]


@pytest.fixture(scope="module", autouse=True)
def _needs_a_sandbox():
    try:
        sandbox.require("full")
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def judge(rollout):
    def judged(source, tests, **settings):
        return code_tests([rollout(f"```python\n{source}\n```", meta={"tests": tests})], **settings)[0]

    return judged


def test_a_program_is_run_on_each_input(judge):
    assert judge("print(2 * int(input()))", DOUBLE).value == 1.0
    wrong = judge("print(2 + int(input()))", DOUBLE)  # right for 2 alone
    assert (wrong.value, wrong.verdict.reason) == (0.0, Reason.DIFFERENT)


def test_part_of_the_tests_is_part_of_the_value_where_asked_for_but_not_a_right_answer(judge):
    half = judge("print(2 + int(input()))", DOUBLE, partial=True, correct=3.0, wrong=-1.0)
    assert half.value == pytest.approx(1.0)
    assert not half.verdict
    whole = judge("print(2 * int(input()))", DOUBLE, partial=True, correct=3.0, wrong=-1.0)
    assert (whole.value, bool(whole.verdict)) == (3.0, True)


def test_functions_are_asked_and_their_values_compared_outside(judge):
    assert judge("def f(x): return x * x", SQUARE).value == 1.0
    assert judge("def f(x): return x + x", SQUARE).verdict.reason is Reason.DIFFERENT
    assert judge("def f(x): return {(1, 'a'): [x, None]}", ["assert f(2.5) == {(1, 'a'): [2.5, None]}"]).value == 1.0
    assert judge("def f(x): return x > 3", ["assert f(4)", "assert not f(3)", "assert f(9) > 0"]).value == 1.0
    assert judge("def f(x): return x > 3", ["assert f(3)"]).value == 0.0
    assert judge("def f(x): return [x]", ["assert f(3)"]).value == 1.0


def test_responses_with_the_same_program_and_tests_share_its_result(rollout, monkeypatch):
    sources, run = list[str](), sandbox.run
    monkeypatch.setattr(sandbox, "run", lambda source, **settings: (sources.append(source), run(source, **settings))[1])
    doubles = "```python\nprint(2 * int(input()))\n```"
    group = [rollout(text, meta={"tests": DOUBLE}) for text in (doubles, "It is short.\n" + doubles, "No program.")]
    other = rollout(doubles, meta={"tests": [{"stdin": "2", "stdout": "2"}]})
    assert [each.value for each in code_tests([*group, other])] == [1.0, 1.0, 0.0, 0.0]
    assert len(sources) == len(DOUBLE) + 1


@pytest.mark.parametrize(
    "cheat",
    [
        "import os; os._exit(0)",
        "exit()",
        "class Yes:\n    def __eq__(self, other): return True\ndef f(x): return Yes()",
        "class Yes:\n    def __repr__(self): return 'True'\ndef f(x): return Yes()",
        "import builtins\nbuiltins.repr = lambda x: 'True'\ndef f(x): return 1",
        "def f(x):\n    import sys\n    print(sys._getframe(1).f_code.co_consts)",
        "print(4)\nraise SystemExit",
        "print(4)\nimport os, sys; sys.stdout.flush(); os._exit(0)",
        "def f(x): return x * x\n'''",
    ],
)
def test_the_known_ways_to_cheat_an_assertion_win_nothing(judge, cheat):
    assert judge(cheat, SQUARE[:1]).value == 0.0


@pytest.mark.parametrize(
    "test",
    ["assert look('hint') == 'open sesame'", "x = 'open sesame'\nassert look('hint') == x and len(x) == 11"],
    ids=["compared", "checked"],
)
def test_what_a_program_can_look_up_holds_the_arguments_and_no_expected_value(judge, test):
    """It finds the hint, so it looks in the right places, and fails to find what the test expects."""
    look = """import gc, sys
def seen():
    frame, text = sys._getframe(), ""
    while frame:
        text, frame = text + repr(frame.f_locals) + repr(frame.f_code.co_consts) + repr(frame.f_globals), frame.f_back
    return text + repr([each for each in gc.get_objects() if type(each) in (dict, list)])
def look(hint):
    text, wanted = seen(), "".join(reversed("emases nepo"))
    if "".join(reversed("tnih")) not in text: return ""
    return text[text.index(wanted):][:11] if wanted in text else 1 / 0
"""
    assert judge(look, [test]).verdict.reason is Reason.UNPARSED


def test_what_a_program_can_look_up_of_its_input_holds_no_expected_output(judge, monkeypatch):
    runs = []
    original = sandbox.run
    monkeypatch.setattr(sandbox, "run", lambda *given, **more: runs.append(original(*given, **more)) or runs[-1])
    look = """import gc, sys
frame, seen = sys._getframe(), repr([each for each in gc.get_objects() if type(each) in (dict, list)])
while frame:
    seen, frame = seen + repr(frame.f_locals), frame.f_back
print(seen, open(0).read())"""
    judge(look, [{"stdin": "hint", "stdout": "open sesame"}])
    assert ["hint" in run.stdout and "_getframe" in run.stdout for run in runs] == [True]
    assert not any("open sesame" in run.stdout + run.stderr for run in runs)


def test_a_huge_or_broken_value_is_a_wrong_one(judge):
    for value in ("'x' * 10**5", "'[' * 500", "float('nan')", "object()", "10**5000"):
        assert judge(f"def f(x): return {value}", SQUARE[:1]).value == 0.0
    padded = "class Padded:\n    def __repr__(self): return ' ' * 10**5 + '4'\ndef f(x): return Padded()"
    assert judge(padded, SQUARE[:1]).value == 0.0


@pytest.mark.parametrize(
    ("printed", "expected", "tolerance", "right"),
    [
        ("1 2 \n3\n\n", "1 2\n3", 0.0, True),
        ("1 2 3", "1 2\n3", 0.0, False),
        ("0.3333", "0.3333333", 0.0, False),
        ("0.3333", "0.3333333", 1e-3, True),
        ("0.34", "0.3333333", 1e-3, False),
        ("yes", "YES", 1e-3, False),
        ("1e1", "10", 1e-3, True),
        ("1_0", "10", 1e-3, False),
        ("\u0661\u0660", "10", 1e-3, False),
        ("nan", "nan 1", 1e-3, False),
        ("", "", 0.0, True),
        ("1\t2\r\n3\r\n", "1 2\n3", 0.0, True),
        *[(f"4{char}2", "4 2", 0.0, False) for char in "\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\xa0\u2003\u2028\u3000"],
        *[(f"4{char}", "4", 0.0, False) for char in "\x0c\x1c\x1f\x85\xa0\u2028"],
        ("4\x1c2", "4 2", 1e-3, False),
    ],
)
def test_printed_output_is_compared_word_by_word(printed, expected, tolerance, right):
    assert same_output(printed, expected, tolerance) is right


def test_no_program_an_endless_one_and_a_broken_one_are_told_apart(judge, rollout):
    nothing = code_tests([rollout("4", meta={"tests": SQUARE})])[0]
    assert nothing.verdict.reason is Reason.NO_ANSWER
    assert judge("while True: pass", DOUBLE, timeout_s=0.3).verdict.reason is Reason.TIMEOUT
    assert judge("def f(x): return x / 0", SQUARE).verdict.reason is Reason.UNPARSED


@pytest.mark.parametrize(
    "tests",
    [None, [], 7, ["f(1) == 1"], ["assert f("], [{"stdin": "1"}], [{"stdin": 1, "stdout": "1"}]],
)
def test_a_problem_without_readable_tests_is_named(rollout, tests):
    bad = rollout("", problem="p3", meta={"tests": tests}).prompt.problem
    with pytest.raises(DataError, match=r"'p3'.*test"):
        check_golds([rollout("", meta={"tests": SQUARE}).prompt.problem, bad])


def receive(packed):
    """What a program's message becomes in the process that compares."""
    peer = Peer(lambda sent: None, lambda: json.dumps({"values": [packed], "instances": []}), namespace={})
    return peer.ask("names", [])


@pytest.mark.parametrize(
    "packed",
    [
        *({"Fraction": ["1e1000000000", 1]}, {"Fraction": ["1/3"]}, {"Fraction": [0.5, 1]}, {"Fraction": [True, 1]}),
        *(
            {"Fraction": [{"int": "f" * 20_000}, 1]},
            {"complex": ["1"]},
            {"Decimal": ["1e9999999"]},
            {"Decimal": [[0, [1], 3]]},
        ),
        *(
            {"int": "1_0"},
            {"int": 5},
            {"range": [0, 1e9, 1]},
            {"timedelta": [0.1, 0, 0]},
            {"date": [{"bytes": [7, 228, 1, 1]}]},
        ),
        *({"bytes": 10**9}, {"datetime": ["2020", 1, 1, 0, 0, 0, 0]}, {"mine": "1"}, {"int": "1", "range": [1]}),
        {"set": [{"int": format(number * (2**61 - 1), "x")} for number in range(1, 200)]},
        {"dict": [[{"int": format(number * (2**61 - 1), "x")}, 0] for number in range(1, 200)]},
    ],
)
def test_a_value_that_no_constructor_may_get_is_refused(packed):
    with pytest.raises(Refused):
        receive(packed)


@pytest.mark.parametrize(
    "value",
    [
        *(
            Fraction(10**30, 7),
            Decimal("-12.50"),
            Decimal("1E+5"),
            Decimal("Infinity"),
            7**3000,
            -(2**60),
            range(0, 9, 3),
        ),
        *(datetime(2020, 1, 2, 3, 4, 5, 6), timedelta(1, 2, 3), complex(1, -2.5), b"xy", bytearray(b"z")),
        {"a": [(1, 2.5), {3, 4}, None], 5: frozenset({6})},
    ],
)
def test_a_plain_value_is_the_same_on_the_other_side(value):
    packed = Peer(lambda sent: None, lambda: "", namespace={})._pack(value, [])
    assert (receive(packed), type(receive(packed))) == (value, type(value))
