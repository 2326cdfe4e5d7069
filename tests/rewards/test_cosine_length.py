"""The cosine length reward: its ends, its middle and what is too long."""

from __future__ import annotations

import math

import pytest

from ansatz.rewards.cosine_length import cosine_length
from ansatz.rewards.grader import build_grader


def test_the_ends_and_the_middle_are_those_of_the_paper(rollout, verdicts):
    group = [rollout("", tokens=n) for n in (0, 500, 999, 0, 500, 999)]
    values = [result.value for result in cosine_length(group, max_tokens=1000, verdicts=verdicts("rrrwww"))]
    end = 0.5 * (1 + math.cos(math.pi * 0.999))  # one token before the end, almost there
    assert values == pytest.approx([2.0, 1.5, 1 + end, -10.0, -5.0, -10 * end])


def test_from_max_tokens_on_right_and_wrong_get_the_same(rollout, verdicts):
    group = [rollout("", tokens=n) for n in (1000, 1000, 1500)]
    values = [result.value for result in cosine_length(group, max_tokens=1000, exceeded=-4.0, verdicts=verdicts("rwr"))]
    assert values == [-4.0, -4.0, -4.0]


def test_right_answers_fall_with_length_and_wrong_ones_rise(rollout, verdicts):
    group = [rollout("", tokens=n) for n in range(0, 100, 10)]
    right = [result.value for result in cosine_length(group, max_tokens=100, verdicts=verdicts("r" * 10))]
    wrong = [result.value for result in cosine_length(group, max_tokens=100, verdicts=verdicts("w" * 10))]
    assert right == sorted(right, reverse=True)
    assert wrong == sorted(wrong)


def test_accuracy_at_weight_0_lends_it_the_verdicts(rollout):
    with build_grader({"math_answer": {"weight": 0}, "cosine_length": {"max_tokens": 100}}) as grader:
        (scored,) = grader.score([rollout(r"\boxed{5}", tokens=50)])
    assert scored.score.value == pytest.approx(1.5)
    assert scored.score.verdict.correct
