from __future__ import annotations

from ansatz.loop.lag import RolloutSchedule


def test_the_versions_of_a_lag_of_two() -> None:
    schedule = RolloutSchedule(lag=2)
    assert [schedule.weights_version_for(step) for step in range(1, 8)] == [0, 0, 0, 1, 2, 3, 4]
    assert [schedule.newest_version_for(step) for step in range(1, 5)] == [0, 1, 2, 3]
    assert schedule.open_through(0) == 3
    assert schedule.max_staleness == 2


def test_versions_are_rounded_down_to_those_that_are_published() -> None:
    schedule = RolloutSchedule(lag=1, publish_every=3)
    assert [version for version in range(8) if schedule.publishes(version)] == [0, 3, 6]
    assert [schedule.weights_version_for(step) for step in range(1, 10)] == [0, 0, 0, 0, 3, 3, 3, 6, 6]
    assert [schedule.newest_version_for(step) for step in range(1, 9)] == [0, 0, 0, 3, 3, 3, 6, 6]
    staleness = [step - 1 - schedule.weights_version_for(step) for step in range(1, 40)]
    assert max(staleness) == schedule.max_staleness == 3


def test_without_a_lag_a_step_is_sampled_with_the_weights_that_it_updates() -> None:
    assert RolloutSchedule().live
    assert not RolloutSchedule(lag=1).live
    assert not RolloutSchedule(publish_every=2).live
    assert [RolloutSchedule().weights_version_for(step) for step in range(1, 5)] == [0, 1, 2, 3]
