"""What only the grader of a recipe promises. Every grader: tests/contracts/test_grader.py."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from given import build_grader
from idle_workers import START

from ansatz.errors import ConfigError, DataError, RewardError
from ansatz.rewards.base import rewards
from ansatz.rewards.grader import RewardGrader, check_golds
from ansatz.types import Reason, Rollout, Verdict

MakeRollout = Callable[..., Rollout]


def test_parts_are_unweighted_and_the_value_is_their_weighted_sum(tmp_path, rollout: MakeRollout):
    file = tmp_path / "mine.py"
    file.write_text(
        "from ansatz.rewards.base import RewardResult\n"
        "def mine(rollouts, *, step, bonus=0.25):\n"
        "    return [RewardResult(value=bonus + step) for _ in rollouts]\n"
    )
    name = f"{file}:mine"
    recipe = {"math_answer": {"correct": 5.0, "wrong": -5.0}, name: {"weight": 0.5, "bonus": 1.0}}
    with build_grader(recipe) as grader:
        right, wrong = grader.score([rollout(r"\boxed{5}"), rollout("")], step=2)
    assert right.score.parts == {"math_answer": 5.0, name: 3.0}
    assert (right.score.value, wrong.score.value) == (6.5, -3.5)
    assert wrong.score.verdict.reason is Reason.NO_ANSWER


def test_without_a_verdict_a_positive_value_counts_as_correct(tmp_path, rollout: MakeRollout):
    file = tmp_path / "mine.py"
    file.write_text(
        "from ansatz.rewards.base import RewardResult\n"
        "def mine(rollouts):\n    return [RewardResult(value=float(len(r.text))) for r in rollouts]\n"
    )
    with build_grader({f"{file}:mine": {}}) as grader:
        some, none = grader.score([rollout("abc"), rollout("")])
    assert some.score.verdict == Verdict(correct=True, reason=Reason.EQUAL, stage="grader")
    assert not none.score.verdict


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({}, "rewards is empty"),
        ({"math_anwser": {}}, "Did you mean 'math_answer'"),
        ({"math_answer": {"modus": "strict"}}, "Did you mean 'mode'"),
        ({"math_answer": {"weight": math.nan}}, "weight"),
        ({"math_answer": {"step": 3}}, "grader fills in 'step'"),
        ({"math_answer": {"pool": 3}}, "the grader fills in 'pool'"),
        ({"nowhere.py:reward": {}}, "does not exist"),
    ],
)
def test_a_wrong_recipe_is_a_config_error_before_any_work(recipe, message):
    with pytest.raises(ConfigError, match=message):
        build_grader(recipe)


def broken_reward(folder, body: str) -> str:
    """The name of a reward with that body in a file of the folder."""
    file = folder / "broken.py"
    file.write_text(
        "import time, numpy\nfrom fractions import Fraction\nfrom itertools import repeat\n"
        f"from ansatz.rewards.base import RewardResult\n\ndef broken(rollouts):\n    {body}\n"
    )
    return f"{file}:broken"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return [RewardResult(value=float('nan'))]", "returned nan"),
        ("return [RewardResult(value=None)]", "returned the RewardResult"),
        ("return [RewardResult(value=1.0, verdict='right')]", "returned the str 'right' as the verdict"),
        ("return []", "returned 0 results for 1 rollouts"),
        ("return [1.0, 2.0]", "returned more than 1 results"),
        ("return repeat(1.0)", "returned more than 1 results"),
        ("return None", "returned None"),
        ("return 1.0", "returned the float 1.0"),
        ("return numpy.float32(1)", "returned the float32"),
        ("return numpy.array(1.0)", "returned the ndarray"),
        ("return 'x'", "returned the str 'x'"),
        ("return {0: 1.0}", "returned the dict"),
        ("return ['1.0']", "returned the str '1.0' for a rollout"),
        ("return [1j]", "returned the complex"),
        ("return [Fraction(1, 2)]", "returned the Fraction"),
        ("return [10**400]", "returned a number of more than 1e\\+300"),
        ("return [numpy.inf]", "returned inf"),
        ("return [[1.0]]", "returned the list"),
        ("return [numpy.zeros(2)]", "returned the ndarray"),
        ("raise ValueError('no\\nbox')", r"raised ValueError: no box \(.*broken.py, line 7\)"),
        ("raise RecursionError", "raised RecursionError"),
        ("return (1 / 0 for _ in rollouts)", "raised ZeroDivisionError"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
        ("time.sleep(60)", "has not returned within 0.3 s"),
        ("end = time.time() + 2\n    while time.time() < end: pass", "has not returned within 0.3 s"),
    ],
)
def test_a_reward_that_breaks_its_contract_is_named(tmp_path, rollout: MakeRollout, body: str, message: str):
    recipe = {broken_reward(tmp_path, body): {"deadline_s": 0.3 if "0.3 s" in message else 60}}
    with build_grader(recipe) as grader, pytest.raises(RewardError, match=rf"broken' {message}.*'p0'"):
        grader.score([rollout("x")])


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("return [numpy.float32(0.5)]", 0.5),
        ("return numpy.array([0.5])", 0.5),
        ("return [numpy.array(2)]", 2.0),
        ("return [True]", 1.0),
        ("return (len(r.text) for r in rollouts)", 1.0),
        ("return [RewardResult(value=numpy.float32(0.5))]", 0.5),
    ],
)
def test_numbers_of_any_kind_are_floats(tmp_path, rollout: MakeRollout, body: str, value: float):
    with build_grader({broken_reward(tmp_path, body): {}}) as grader:
        (scored,) = grader.score([rollout("x")])
    assert (scored.score.value, {type(part) for part in scored.score.parts.values()}) == (value, {float})


def test_closing_ends_the_wait_for_a_reward_that_hangs(tmp_path, rollout: MakeRollout):
    grader = build_grader({broken_reward(tmp_path, "time.sleep(600)"): {}}, workers=2)
    threading.Timer(0.3, grader.close).start()
    with pytest.raises(RewardError, match="was still running for problem"):
        grader.score([rollout("x", problem=f"p{n}") for n in range(3)])


@pytest.mark.parametrize("deadline_s", [0, -1, "soon", math.inf, math.nan])
def test_a_wrong_deadline_is_refused(tmp_path, deadline_s):
    with pytest.raises(ConfigError, match="deadline_s"):
        build_grader({broken_reward(tmp_path, "return [1.0]"): {"deadline_s": deadline_s}})


def test_the_registry_lists_rewards_and_nothing_else():
    names = rewards.names()
    assert "math_answer" in names
    assert not {"base", "grader", "pool", "worker", "fake"} & set(names)


def test_rewards_import_neither_torch_nor_sympy():
    code = "import sys, ansatz.rewards.grader; print(sorted({'torch', 'sympy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize(("recipe", "processes"), [({"math_answer": {}}, 1), ({"format": {}, "countdown": {}}, 0)])
def test_the_worker_for_algebra_starts_with_the_grader_if_a_reward_needs_it(monkeypatch, recipe, processes: int):
    monkeypatch.setattr(RewardGrader, "start", START)
    grader = build_grader(recipe)
    assert processes_of(grader) == 0
    with grader:
        assert processes_of(grader) == processes


def processes_of(grader: RewardGrader) -> int:
    return grader._pool.started  # pyright: ignore[reportPrivateUsage]


def test_a_reward_applies_to_the_sources_that_it_is_bound_to(rollout: MakeRollout):
    recipe = {"math_answer": {"sources": ["math", "test"]}, "repetition": {"sources": "code"}}
    with build_grader(recipe) as grader:
        scored = [
            grader.score([rollout(r"\boxed{5}", meta=meta)])[0].score for meta in ({}, {"data_source": "code"}, {})
        ]
        other = grader.score([rollout("5", source="essays")])[0].score
    applied = [[name for name, value in score.parts.items() if not math.isnan(value)] for score in scored]
    assert applied == [["math_answer"], ["math_answer", "repetition"], ["math_answer"]]
    assert not other.applies
    with pytest.raises(ConfigError, match=r"rewards.math_answer.sources = 3: expected a list of sources"):
        build_grader({"math_answer": {"sources": 3}})


def test_gold_answers_are_read_for_the_sources_that_a_reward_is_bound_to(rollout: MakeRollout):
    unreadable = rollout("", gold=r"\frac{").prompt.problem
    with pytest.raises(DataError):
        check_golds({"math_answer": {}}, [unreadable])
    check_golds({"math_answer": {"sources": ["math"]}}, [unreadable])
