"""DAPO's soft overlong punishment, against the three cases of its equation 13."""

from __future__ import annotations

import pytest

from ansatz.errors import ConfigError
from ansatz.rewards.grader import build_grader
from ansatz.rewards.overlong import overlong


def test_the_ramp_is_flat_then_linear_then_flat(rollout):
    group = [rollout("", tokens=n) for n in (0, 60, 70, 80, 100, 101, 500)]
    values = [result.value for result in overlong(group, max_tokens=100, buffer=40)]
    assert values == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0, -1.0]


def test_strength_scales_it(rollout):
    assert overlong([rollout("", tokens=100)], max_tokens=100, buffer=40, strength=3.0)[0].value == -3.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokens": 10, "buffer": 11}, "buffer = 11: expected at most max_tokens = 10"),
        ({"max_tokens": 10, "buffer": 0}, "buffer"),
        ({"max_tokens": 10}, "needs the setting 'buffer'"),
    ],
)
def test_a_wrong_recipe_is_refused_before_any_work(settings, message):
    with pytest.raises(ConfigError, match=message):
        build_grader({"math_answer": {}, "overlong": settings})
