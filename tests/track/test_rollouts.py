from __future__ import annotations

import dataclasses
import math

import pytest
from made_up import group, problem, scored

from ansatz.track.measurements import merge, values
from ansatz.track.metrics import check_known
from ansatz.track.rollouts import describe_abstentions, rollout_metrics, version_lag
from ansatz.types import Finish, Group, Reason


def two_groups():
    mixed = [
        scored(reward=1.0, token_ids=(1, 2, 3, 4), parts={"accuracy": 1.0, "format": 1.0}),
        scored(reward=0.0, reason=Reason.DIFFERENT, token_ids=(1, 2), parts={"accuracy": 0.0, "format": 1.0}),
    ]
    flat = [
        scored(problem(index=1), reward=0.0, reason=Reason.NO_ANSWER, token_ids=(5,) * 12, parts={"accuracy": 0.0}),
        scored(problem(index=1), reward=0.0, reason=Reason.TRUNCATED, finish=Finish.LENGTH, parts={"accuracy": 0.0}),
    ]
    return [group(mixed), group(flat)]


def test_rollout_metrics_by_hand():
    found = values(rollout_metrics(two_groups()))
    assert found["rollout/rewards"] == 0.25
    assert found["rollout/reward_std"] == 0.25  # (0.5 + 0) / 2
    assert found["rollout/accuracy"] == 0.25
    assert found["rollout/response_length"] == (4 + 2 + 12 + 3) / 4
    assert found["rollout/response_length_max"] == 12
    assert found["rollout/truncated_frac"] == 0.25
    assert found["rollout/no_answer_frac"] == 0.25
    assert found["rollout/groups_with_signal_frac"] == 0.5
    assert found["rollout/repetition"] == pytest.approx((1 - 1 / 5) / 4)  # five equal 8-grams in one of four
    assert found["rollout/verdict/different"] == 0.25
    assert found["rollout/verdict/timeout"] == 0


def test_reward_parts_are_means_over_the_rollouts_that_have_them():
    found = values(rollout_metrics(two_groups()))
    assert found["reward/accuracy"] == 0.25
    assert found["reward/format"] == 1.0


def test_rewards_of_a_file_are_named_by_the_shortest_end_that_no_other_shares():
    names = ("/home/me/p/rewards.py:brief", "/home/me/a/rewards.py:long", "b/rewards.py:long", "math_answer")
    shown = {f"reward/{name}" for name in ("rewards.py:brief", "a/rewards.py:long", *names[2:])}
    parts = dict.fromkeys(names, 1.0)
    for of_step, expected in ((parts, shown), ({**parts, names[2]: math.nan}, shown - {f"reward/{names[2]}"})):
        found = rollout_metrics([group([scored(parts=of_step)])])
        assert {name for name in found if name.startswith("reward/")} == expected


def test_verdict_shares_add_up_to_one():
    found = values(rollout_metrics(two_groups()))
    shares = [value for name, value in found.items() if name.startswith("rollout/verdict/")]
    assert len(shares) == len(Reason)
    assert sum(shares) == pytest.approx(1)


def test_the_order_of_groups_does_not_matter():
    forward, backward = values(rollout_metrics(two_groups())), values(rollout_metrics(two_groups()[::-1]))
    assert forward == pytest.approx(backward)


def test_metrics_of_two_halves_of_a_step_merge_into_those_of_the_step():
    mixed, flat = two_groups()
    halves = merge([rollout_metrics([mixed]), rollout_metrics([flat])])
    assert values(halves) == pytest.approx(values(rollout_metrics([mixed, flat])))


def test_every_rollout_metric_is_documented():
    names = rollout_metrics(two_groups())
    check_known(names)
    assert "rollout/rewards" in names


def test_a_step_without_groups_is_refused():
    with pytest.raises(ValueError, match="got 0"):
        rollout_metrics([])


def test_rounding_is_no_signal():
    for rewards, has_signal in (([0.1 + 0.2, 0.3], False), ([0.0], False), ([0.0, 1e-3], True)):
        assert group([scored(reward=reward) for reward in rewards]).has_signal == has_signal


def test_the_version_lag_is_the_distance_to_the_updated_policy_over_all_sampled_tokens():
    """Version 5 is updated. A rollout that ended under version 3 waited for the other, whose two tokens of version 4
    are followed by a forced token, which nobody sampled, and by one of version 5: (3 x 2 + 2 x 1 + 0) / 6 tokens."""
    member = scored()
    waited = dataclasses.replace(
        member.rollout, token_ids=(7, 7, 7), behavior_logps=(-1.0,) * 3, versions=(), version_min=3, version_max=3
    )
    slow = dataclasses.replace(
        member.rollout,
        token_ids=(7, 7, 7, 7),
        behavior_logps=(-1.0, -1.0, 0.0, -1.0),
        versions=(4, 4, 4, 5),
        sampled_mask=(True, True, False, True),
        version_min=4,
        version_max=5,
    )
    members = tuple(dataclasses.replace(member, rollout=rollout) for rollout in (waited, slow))
    groups = [Group(prompt=member.rollout.prompt, members=members)]
    assert values({"rollout/version_lag": version_lag(groups, version=5)}) == {"rollout/version_lag": 8 / 6}


def test_rewards_average_over_the_responses_that_they_apply_to_and_the_others_are_counted():
    parts = [{"math": 1.0, "f/style.py:brief": math.nan}, {"math": math.nan, "f/style.py:brief": 0.5}]
    parts.append(dict.fromkeys(parts[0], math.nan))
    members = [scored(reward=reward, parts=part) for reward, part in zip((1.0, 0.5, 0.0), parts, strict=True)]
    found = values(rollout_metrics([group(members)]))
    assert (found["rollout/rewards"], found["reward/math"], found["reward/style.py:brief"]) == (0.75, 1.0, 0.5)
    assert describe_abstentions([group(members)]) == (
        "of 3 responses, rewards do not apply: style.py:brief to 2, math to 2. 1 have no reward at all and are left "
        "out of their groups."
    )
    assert describe_abstentions(two_groups()) is None
