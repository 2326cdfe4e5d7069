"""What `ansatz-verify check` says about reward functions of several conventions, with defects that are known."""

from pathlib import Path

import pytest
from ansatz_verify import check
from ansatz_verify.check import BATCH, CALLS, LENGTH, RANDOM, RUNS, THREADS, TIME, check_function, load_function, report
from ansatz_verify.forks import ENDS, HANGS

PLACE = Path(__file__).with_name("checked.py")


@pytest.fixture(autouse=True)
def few_calls_in_threads(request, monkeypatch):
    """Threads go on until one finds a difference, and only `shared` has one."""
    if "shared" not in request.node.name:
        monkeypatch.setattr(check, "_THREADS_S", 0.05)


def findings(name):
    return check_function(*load_function(f"{PLACE}:{name}"))


@pytest.mark.parametrize(
    ("name", "called", "form"),
    [
        ("gold_first", "f(prediction=text, ground_truth=gold as text)", "\\boxed{{{}}}"),
        ("trl", "f(completions=[messages, ...], solution=[gold as text, ...])", "\\boxed{{{}}}"),
        ("asynchronous", "f(completions=[text, ...], answer=[gold as text, ...])", "\\boxed{{{}}}"),
        ("verl", "f(solution_str=text, ground_truth=gold as text)", "#### {}"),
    ],
)
def test_the_convention_is_found_by_trying_and_a_sound_function_only_refuses(name, called, form):
    found = findings(name)
    assert found.convention is not None
    assert (found.convention.describe("f"), found.convention.form) == (called, form)
    assert {*found.paid} <= {"the gold elsewhere"}  # a thought that stays open
    assert "roots" in found.refused
    assert {what: example for what, example in found.behaviour.items() if example and what != "raises"} == {}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("by_luck", RANDOM),
        ("by_hour", TIME),
        ("only_once", CALLS),
        ("shared", THREADS),
        ("without_doubles", LENGTH),
        ("relative", BATCH),
    ],
)
def test_what_a_reward_depends_on_is_named(name, what):
    found = findings(name)
    assert [each for each, example in found.behaviour.items() if example and each != "raises"] == [what]
    assert any(f"{what:26s} YES" in line for line in report("f", found))


def test_hangs_ends_raises_and_code_are_found():
    behaviour = findings("careless").behaviour
    assert {what for what, example in behaviour.items() if example} >= {HANGS, RUNS, "raises"}
    assert behaviour.get(ENDS) is not None


def test_a_function_that_hangs_without_a_box_is_named_and_hangs_nothing_else():
    found = findings("patient")
    assert found.behaviour[HANGS]
    assert "roots" in found.refused


def test_a_substring_is_paid_and_the_smallest_example_comes_first():
    found = findings("substring")
    assert len(found.paid["the gold as a part"]) == found.totals["the gold as a part", False]
    lengths = [len(response) for _, response in found.paid["the gold as a part"]]
    assert lengths == sorted(lengths)
    assert "on None" in found.behaviour["raises"]


def test_a_function_that_pays_nothing_is_said_to_and_how_it_was_called():
    found = findings("never")
    assert found.convention is None
    said = "\n".join(report("never", found))
    assert "no call was found" in said
    assert "it(response=text, gold=gold as text): it pays a right answer no more than a wrong one" in said


def test_the_adapters_of_this_package_are_clean_but_for_slow_machines():
    found = check_function(*load_function("ansatz_verify.adapters:verl_compute_score"))
    assert (dict(found.paid), dict(found.refused)) == ({}, {})
