"""Scorers of reasoning-gym, some of which evaluate the answer as Python: a package of that name with such scorers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansatz.errors import MissingExtraError
from ansatz.rewards import reasoning_gym as module
from ansatz.rewards.reasoning_gym import reasoning_gym
from ansatz.types import Reason

PACKAGE = """
import os, time
from sympy.parsing.sympy_parser import parse_expr

def joined(answer, entry):
    return float("".join(eval(answer)) == entry["answer"])

def formula(answer, entry):
    return float(parse_expr(answer) == parse_expr(entry["answer"]))

def program(answer, entry):
    exec(answer)
    return 1.0

def raising(answer, entry):
    raise KeyError(answer)

def dying(answer, entry):
    os.abort()

def sleeping(answer, entry):
    time.sleep(600)

def no_number(answer, entry):
    return float("nan")

def partly(answer, entry):
    return 0.25

count = 0

def counting(answer, entry):
    global count
    count += 1
    return count / 4

def get_score_answer_fn(name):
    return globals()[name]
"""


@pytest.fixture(scope="module", autouse=True)
def _package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("site-packages")
    (folder / "reasoning_gym.py").write_text(PACKAGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        module._start_pool.cache_clear()
        yield
        module._start_pool().close()
        module._start_pool.cache_clear()


@pytest.fixture
def score(rollout):
    def score(task: str, answer: str, *, gold: str = "6*x", timeout_s: float = 20.0):
        meta = {"task": task, "entry": json.dumps({"answer": gold})}
        text = f"So <answer>{answer}</answer>"
        (result,) = reasoning_gym([rollout(text, meta=meta)], wrong=-1.0, timeout_s=timeout_s)
        return result.value, result.verdict.reason

    return score


@pytest.mark.parametrize(
    ("task", "answer"),
    [("joined", "['6', '*', 'x']"), ("joined", "('6*', str('x'))"), ("formula", "2*3*x"), ("formula", "sqrt(36)*x")],
)
def test_lists_and_formulas_are_evaluated(score, task: str, answer: str):
    assert score(task, answer) == (1.0, Reason.EQUAL)


@pytest.mark.parametrize("task", ["joined", "formula"])
@pytest.mark.parametrize(
    "answer",
    [
        "entry['answer']",
        "[*entry['answer']]",
        "entry.update(answer=answer) or answer",
        "__import__('os').abort()",
        "open('{file}', 'w').write('x')",
        "(lambda: '6*x')()",
        "[part for part in entry['answer']]",
        "globals().clear()",
        "setattr(__builtins__, 'float', lambda x: 1.0)",
        "(x := '6*x')",
        "f'{{entry}}'",
        "exec('raise SystemExit')",
        "''.__class__.__mro__",
    ],
)
def test_an_answer_can_call_and_name_nothing_but_mathematics(score, task: str, answer: str, tmp_path: Path):
    file = tmp_path / "written"
    assert score(task, answer.format(file=file)) == (-1.0, Reason.UNPARSED)
    assert not file.exists()


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("raising", (-1.0, Reason.UNPARSED)),
        ("no_number", (-1.0, Reason.UNPARSED)),
        ("program", (-1.0, Reason.UNPARSED)),
        ("dying", (-1.0, Reason.CRASHED)),
        ("partly", (0.25, Reason.DIFFERENT)),
    ],
)
def test_a_scorer_that_fails_has_a_verdict(score, task: str, expected: object):
    assert score(task, "1") == expected


@pytest.mark.parametrize(
    ("task", "answer"), [("sleeping", "1"), ("formula", "9**9**9**9"), ("formula", "factorial(10**9)")]
)
def test_a_scorer_that_does_not_end_is_killed(score, task: str, answer: str):
    assert score(task, answer, timeout_s=0.3) == (-1.0, Reason.TIMEOUT)
    assert score("partly", "1") == (0.25, Reason.DIFFERENT)  # the worker that has imported the package is still there


def test_no_answer_finds_what_an_earlier_one_has_left(score):
    assert [score("counting", "1")[0] for _ in range(3)] == [0.25, 0.25, 0.25]


def test_a_package_that_cannot_be_imported_is_named(score, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "reasoning_gym.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    module._start_pool().close()  # the next worker looks for the package again
    with pytest.raises(MissingExtraError, match="no_such_module"):
        score("partly", "1")
    module._start_pool().close()
