"""L1: with math_answer beside it, the sum is the paper's reward."""

from __future__ import annotations

import pytest

from ansatz.errors import ConfigError, DataError
from ansatz.rewards.grader import build_grader
from ansatz.rewards.target_length import target_length


def test_exact_takes_off_alpha_for_each_token_of_distance_right_or_wrong(rollout, verdicts):
    group = [rollout("", tokens=n, meta={"target_tokens": 100}) for n in (100, 90, 130, 130)]
    values = [result.value for result in target_length(group, alpha=0.01, verdicts=verdicts("rrrw"))]
    assert values == pytest.approx([0.0, -0.1, -0.3, -0.3])


def test_max_is_a_soft_ceiling_for_right_answers_and_silent_on_wrong_ones(rollout, verdicts):
    group = [rollout("", tokens=n) for n in (10, 100, 130, 900, 900)]
    values = [
        result.value
        for result in target_length(group, mode="max", target_tokens=100, alpha=0.01, verdicts=verdicts("rrrrw"))
    ]
    # clip(0.01 (100 - n) + 0.5, 0, 1) = 1, 0.5, 0.2, 0; less 1
    assert values == pytest.approx([0.0, -0.5, -0.8, -1.0, 0.0])


def test_with_accuracy_the_sum_is_equation_1(rollout):
    recipe = {"math_answer": {}, "target_length": {"target_tokens": 8, "alpha": 0.1}}
    with build_grader(recipe) as grader:
        right, wrong = grader.score([rollout(r"\boxed{5}", tokens=10), rollout("", tokens=5)])
    assert right.score.value == pytest.approx(1 - 0.1 * 2)
    assert wrong.score.value == pytest.approx(0 - 0.1 * 3)


def test_the_problems_own_target_goes_before_the_setting(rollout, verdicts):
    with_target = rollout("", tokens=10, meta={"target_tokens": 10})
    assert target_length([with_target], target_tokens=99, verdicts=verdicts("r"))[0].value == 0.0


@pytest.mark.parametrize("meta", [{}, {"target_tokens": "many"}, {"target_tokens": 0}, {"target_tokens": True}])
def test_a_problem_without_a_target_is_named(rollout, verdicts, meta):
    with pytest.raises(DataError, match=r"'p7'.*target_tokens"):
        target_length([rollout("", problem="p7", meta=meta)], verdicts=verdicts("r"))


def test_an_unknown_mode_is_refused_before_any_work():
    with pytest.raises(ConfigError, match="mode"):
        build_grader({"math_answer": {}, "target_length": {"mode": "about"}})
