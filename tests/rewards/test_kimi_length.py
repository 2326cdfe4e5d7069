"""Kimi's length reward: group-relative, in tokens, off until its step."""

from __future__ import annotations

import pytest

from ansatz.errors import ConfigError
from ansatz.rewards.grader import build_grader
from ansatz.rewards.kimi_length import kimi_length


def values(judgements):
    return [judgement.value for judgement in judgements]


def test_shorter_right_answers_get_more_and_wrong_ones_never_gain(rollout, verdicts):
    group = [rollout("", tokens=n) for n in (10, 20, 30, 10, 30)]
    # lambda = 0.5 - (length - 10) / 20 = 0.5, 0, -0.5, 0.5, -0.5; wrong: min(0, lambda)
    assert values(kimi_length(group, from_step=0, step=0, verdicts=verdicts("rrrww"))) == [0.5, 0.0, -0.5, 0.0, -0.5]


def test_it_is_off_before_its_step_and_on_from_it(rollout, verdicts):
    group = [rollout("", tokens=n) for n in (10, 30)]
    assert values(kimi_length(group, from_step=5, step=4, verdicts=verdicts("rr"))) == [0.0, 0.0]
    assert values(kimi_length(group, from_step=5, step=5, verdicts=verdicts("rr"))) == [0.5, -0.5]


def test_it_grows_linearly_to_its_full_size(rollout, verdicts):
    """ramp_steps 4 from step 5: a fifth more at each of the steps 5 to 9, then all of it."""
    group = [rollout("", tokens=n) for n in (10, 30)]
    shares = [
        kimi_length(group, from_step=5, ramp_steps=4, step=step, verdicts=verdicts("rr"))[0].value / 0.5
        for step in (0, 4, 5, 6, 7, 8, 9, 10, 1000)
    ]
    assert shares == pytest.approx([0, 0, 0.2, 0.4, 0.6, 0.8, 1, 1, 1])
    assert kimi_length(group, from_step=5, ramp_steps=4, step=9, verdicts=verdicts("rr"))[1].value == -0.5


def test_the_grader_scales_the_ramp_by_the_weight(rollout):
    recipe = {"kimi_length": {"from_step": 2, "ramp_steps": 1, "weight": 2.0}, "math_answer": {}}
    group = [rollout(r"\boxed{5}", tokens=10), rollout(r"\boxed{5}", tokens=30)]
    with build_grader(recipe) as grader:
        values_by_step = [[item.score.value for item in grader.score(group, step=step)] for step in (1, 2, 3)]
    assert values_by_step == [[1.0, 1.0], [1.5, 0.5], [2.0, 0.0]]


def test_equal_lengths_get_nothing(rollout, verdicts):
    group = [rollout("", tokens=7)] * 3
    assert values(kimi_length(group, from_step=0, step=0, verdicts=verdicts("rwr"))) == [0.0] * 3


def test_the_grader_hands_it_the_verdicts_of_the_reward_that_grades_whatever_the_order(rollout):
    recipe = {"kimi_length": {"from_step": 2, "weight": 0.5}, "math_answer": {}}
    group = [rollout(r"\boxed{5}", tokens=10), rollout(r"\boxed{5}", tokens=30), rollout(r"\boxed{6}", tokens=10)]
    with build_grader(recipe) as grader:
        early, late = grader.score(group, step=1), grader.score(group, step=2)
    assert [item.score.value for item in early] == [1.0, 1.0, 0.0]
    assert [item.score.value for item in late] == [1.25, 0.75, 0.0]
    assert late[1].score.parts == {"math_answer": 1.0, "kimi_length": -0.5}


def test_without_a_reward_that_grades_the_recipe_is_refused():
    with pytest.raises(ConfigError, match=r"kimi_length needs to know which responses are correct.*math_answer"):
        build_grader({"kimi_length": {"from_step": 0}})


def test_a_companion_that_gives_no_verdicts_is_named_when_it_shows(rollout):
    recipe = {"kimi_length": {"from_step": 0}, "repetition": {}}
    with build_grader(recipe) as grader, pytest.raises(ConfigError, match="kimi_length needs to know"):
        grader.score([rollout("a"), rollout("b")])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"from_step": -1},
        {"from_step": "soon"},
        {"from_step": 0, "verdicts": []},
        {"from_step": 0, "ramp_steps": -1},
    ],
)
def test_a_wrong_recipe_is_refused_before_any_work(settings):
    with pytest.raises(ConfigError, match="kimi_length"):
        build_grader({"math_answer": {}, "kimi_length": settings})
