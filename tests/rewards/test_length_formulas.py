from __future__ import annotations

import pytest

from ansatz.rewards.length_formulas import (
    cosine_length,
    group_length,
    lcpo_exact,
    lcpo_max,
    relative_length,
    soft_overlong,
)


def test_soft_overlong_is_a_ramp_at_the_end_of_the_budget():
    lengths = (0, 80, 90, 100, 300)
    assert [soft_overlong(n, max_tokens=100, buffer=20) for n in lengths] == [0.0, 0.0, -0.5, -1.0, -1.0]
    assert soft_overlong(100, max_tokens=100, buffer=20, strength=0.5) == -0.5


def test_group_length_rewards_short_right_answers_and_never_short_wrong_ones():
    assert group_length([10, 20, 30], [True, True, True]) == [0.5, 0.0, -0.5]
    assert group_length([10, 20, 30], [False, False, False]) == [0.0, 0.0, -0.5]
    assert group_length([20, 20], [True, False]) == [0.0, 0.0]


def test_lcpo_asks_for_a_length_or_for_a_ceiling():
    assert lcpo_exact(900, True, target=1000, alpha=1e-3) == pytest.approx(0.9)
    assert lcpo_exact(1100, False, target=1000, alpha=1e-3) == pytest.approx(-0.1)
    assert lcpo_max(500, True, target=1000, alpha=1e-3) == 1.0
    assert lcpo_max(1000, True, target=1000, alpha=1e-3) == 0.5
    assert lcpo_max(1400, True, target=1000, alpha=1e-3) == pytest.approx(0.1)
    assert lcpo_max(1, False, target=1000) == 0.0


def test_cosine_length_runs_from_the_short_reward_to_the_long_one():
    for correct, short, long in ((True, 1.0, 0.5), (False, -1.0, -0.5)):
        ends = [cosine_length(n, correct, max_tokens=100) for n in (0, 50, 100)]
        assert ends == pytest.approx([short, (short + long) / 2, long])


def test_relative_length_takes_off_a_share_of_the_mean_reward():
    assert relative_length([5.0, 10.0], [1.0, 0.0], weight=0.2) == pytest.approx([0.05, 0.1])
    assert relative_length([5.0, 10.0], [0.0, 0.0], weight=0.2) == [0.0, 0.0]
    assert relative_length([0.0, 0.0], [1.0, 1.0], weight=0.2) == [0.0, 0.0]
