"""What only the grader of a recipe promises. Every grader: tests/contracts/test_grader.py."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import pytest

from ansatz.errors import ConfigError
from ansatz.rewards.base import rewards
from ansatz.rewards.grader import build_grader
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
        ({"nowhere.py:reward": {}}, "no file"),
    ],
)
def test_a_wrong_recipe_is_a_config_error_before_any_work(recipe, message):
    with pytest.raises(ConfigError, match=message):
        build_grader(recipe)


@pytest.mark.parametrize("body", ["[RewardResult(value=float('nan')) for _ in rollouts]", "[]"])
def test_a_reward_that_breaks_its_contract_is_named(tmp_path, rollout: MakeRollout, body: str):
    file = tmp_path / "broken.py"
    file.write_text(f"from ansatz.rewards.base import RewardResult\ndef broken(rollouts):\n    return {body}\n")
    with build_grader({f"{file}:broken": {}}) as grader, pytest.raises(ConfigError, match=r"broken.*'p0'"):
        grader.score([rollout("x")])


def test_the_registry_lists_rewards_and_nothing_else():
    names = rewards.names()
    assert "math_answer" in names
    assert not {"base", "grader", "pool", "worker", "fake"} & set(names)


def test_rewards_import_neither_torch_nor_sympy():
    code = "import sys, ansatz.rewards.grader; print(sorted({'torch', 'sympy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
