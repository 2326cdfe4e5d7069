"""The state machine of a worker, what gives a lie away, and the budget of restarts. All of it is pure."""

from __future__ import annotations

import pytest

from ansatz.cluster.health import Confirmation, Health, RestartBudget, State, Weights, contradiction

ONE = Weights(1, "a")
NEW, OLD = Confirmation(policy_version=4, logps=(-1.0, -2.0)), Confirmation(policy_version=3, logps=(-1.5, -2.5))


def test_a_worker_is_ready_only_after_a_confirmed_push():
    health = Health(since=0.0)
    with pytest.raises(ValueError, match="cannot change from starting to ready"):
        health.confirmed(ONE, 1.0)
    health.pushing(2.0)
    assert (health.state, health.weights) == (State.PUSHING, None)
    health.confirmed(ONE, 3.0)
    assert (health.state, health.weights, health.since) == (State.READY, ONE, 3.0)


def test_a_push_takes_the_old_version_away_until_it_is_confirmed():
    health = Health(since=0.0)
    health.pushing(0.0)
    health.confirmed(ONE, 0.0)
    health.pushing(1.0)
    assert health.weights is None


def test_a_suspect_worker_without_confirmed_weights_cannot_be_cleared():
    health = Health(since=0.0)
    health.pushing(0.0)
    health.suspect("slow", 1.0)
    with pytest.raises(ValueError, match="without confirmed weights"):
        health.cleared(2.0)


def test_a_retired_worker_never_returns():
    health = Health(since=0.0)
    health.died("signal 9", 1.0)
    health.retired(1.0)
    with pytest.raises(ValueError, match="cannot change from retired"):
        health.restarted(2.0)


def test_an_engine_with_another_version_contradicts_the_push():
    assert contradiction(NEW, NEW, exact=True, previous=None) is None
    assert "policy version 3" in str(contradiction(NEW, OLD, exact=True, previous=None))


def test_an_exact_engine_with_the_new_version_and_other_numbers_is_caught():
    reported = Confirmation(policy_version=4, logps=OLD.logps)
    assert "differ by up to 0.5" in str(contradiction(NEW, reported, exact=True, previous=None))
    shorter = Confirmation(policy_version=4, logps=(-1.0,))
    assert "1 instead of 2 tokens" in str(contradiction(NEW, shorter, exact=True, previous=None))


def test_weights_whose_log_probs_are_not_known_are_judged_by_their_version():
    unknown = Confirmation(policy_version=4, logps=())
    assert contradiction(unknown, NEW, exact=True, previous=None) is None
    assert contradiction(unknown, OLD, exact=True, previous=None) is not None


def test_an_engine_that_rounds_is_caught_when_it_repeats_its_old_numbers():
    rounded_old, rounded_new = (-1.51, -2.49), (-1.01, -1.99)
    before = OLD, Confirmation(policy_version=3, logps=rounded_old)
    honest = Confirmation(policy_version=4, logps=rounded_new)
    lying = Confirmation(policy_version=4, logps=rounded_old)
    assert contradiction(NEW, honest, exact=False, previous=before) is None
    assert "still those of policy version 3" in str(contradiction(NEW, lying, exact=False, previous=before))


def test_equal_weights_under_a_new_version_are_no_lie():
    same_weights = Confirmation(policy_version=4, logps=OLD.logps)  # a skipped step, or a learning rate of 0
    before = OLD, Confirmation(policy_version=3, logps=(-1.51, -2.49))
    reported = Confirmation(policy_version=4, logps=(-1.51, -2.49))
    assert contradiction(same_weights, reported, exact=False, previous=before) is None


def test_weights_from_before_a_resume_whose_log_probs_are_not_known_show_no_lie():
    before = Confirmation(policy_version=3, logps=()), Confirmation(policy_version=3, logps=(-1.01, -1.99))
    reported = Confirmation(policy_version=4, logps=(-1.01, -1.99))  # a skipped step: the same weights
    assert contradiction(NEW, reported, exact=False, previous=before) is None


def test_delays_double_and_the_sixth_death_within_an_hour_spends_the_budget():
    budget = RestartBudget()
    assert [budget.delay_after_death(float(minute)) for minute in range(6)] == [1.0, 2.0, 4.0, 8.0, 16.0, None]


def test_deaths_older_than_the_window_are_forgotten():
    budget = RestartBudget(restarts=2, window_s=100.0, max_delay_s=1.5)
    assert [budget.delay_after_death(time) for time in (0.0, 50.0, 60.0, 101.0, 151.0)] == [1.0, 1.5, None, 1.5, 1.5]
