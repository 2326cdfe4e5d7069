from __future__ import annotations

from ansatz.loop.rollout_queue import weights_version_for


def test_the_versions_of_a_lag_of_two() -> None:
    assert [weights_version_for(step, lag=2) for step in range(1, 8)] == [0, 0, 0, 1, 2, 3, 4]


def test_without_a_lag_a_step_is_sampled_with_the_weights_that_it_updates() -> None:
    assert [weights_version_for(step, lag=0) for step in range(1, 5)] == [0, 1, 2, 3]
