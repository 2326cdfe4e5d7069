"""The pool on a virtual clock: shares, versions, deaths, hangs, lies, late answers and second leases."""

from __future__ import annotations

import dataclasses

import pytest
from fake_cluster import FakeCluster, Plan
from pool_workers import LIMITS, Workers, collect, collect_all, probe, rollouts_of, ticket, weights

from ansatz.cluster.health import State
from ansatz.errors import RolloutError
from ansatz.rollout.ticket import Ticket


def tickets(step: int, count: int, version: int) -> list[Ticket]:
    return [ticket(step, place, version) for place in range(count)]


def test_workers_share_the_tickets_and_every_ticket_lands_once():
    workers = Workers()
    pool = workers.pool(3)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 12, 0))
    landed = collect_all(pool, 12)
    assert sorted(landing.ticket.place for landing in landed) == list(range(12))
    assert all(landing.rollouts == rollouts_of(landing.ticket) for landing in landed)
    assert [len(workers.leased(f"w-{index}")) for index in range(3)] == [4, 4, 4]


def test_tickets_wait_for_their_weights():
    workers = Workers()
    pool = workers.pool(1)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 2, 0) + tickets(2, 2, 1))
    assert len(collect_all(pool, 2)) == 2
    assert collect(pool, 100.0) == []
    pool.publish(weights(1), probe(1))
    assert {landing.ticket.step for landing in collect_all(pool, 2)} == {2}
    assert [args for _, method, args in workers.calls if method == "push"] == [0, 1]


def test_workers_that_join_before_anything_is_published_load_the_first_weights():
    workers = Workers()
    pool = workers.pool(2)
    assert collect(pool, 5.0) == []
    pool.publish(weights(3), probe(3))
    pool.submit(tickets(1, 4, 3))
    assert len(collect_all(pool, 4)) == 4


def test_a_death_reopens_the_leases_at_once_and_the_worker_is_replaced():
    workers = Workers(lambda worker, ticket: None if worker == "w-0" else 1.0)
    pool = workers.pool(2)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 4, 0))
    workers.cluster.die("w-0", after_s=3.0)
    collect_all(pool, 4)
    assert {landing.place for landing in workers.leased("w-0")} <= {landing.place for landing in workers.leased("w-1")}
    assert pool.counts.deaths == 1
    assert pool.counts.reopened == 2
    collect(pool, 10.0)
    assert workers.cluster.alive == ["w-1", "w-2"]


def test_a_worker_that_hangs_is_given_up_after_the_lease_and_the_probe():
    workers = Workers(lambda worker, ticket: None if worker == "w-0" else 1.0)
    pool = workers.pool(2)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 2, 0))
    assert len(collect_all(pool, 2)) == 2
    assert workers.cluster.now() < 1.0 + 0.5 + LIMITS.lease + 1.0 + 1.0
    collect(pool, LIMITS.probe + 0.1)
    assert "w-0" not in workers.cluster.alive


def test_a_worker_that_hangs_is_given_up_even_if_another_has_answered_its_tickets():
    workers = Workers(lambda worker, ticket: None if worker == "w-0" and ticket.step == 2 else 0.1)
    pool = workers.pool(2)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 40, 0))
    collect_all(pool, 40)
    pool.submit(tickets(2, 2, 0))
    assert {landing.worker for landing in collect_all(pool, 2)} == {"w-1"}
    pool.forget(each.key for each in tickets(2, 2, 0))
    assert pool.counts.deaths == 0
    collect(pool, 4 * LIMITS.lease)
    assert pool.counts.deaths == 1
    assert "w-0" not in workers.cluster.alive


def test_answers_of_a_stopped_worker_are_never_used_after_its_lease_has_ended():
    workers = Workers()
    pool = workers.pool(2)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 2, 0))
    collect(pool, 1.6)  # both have their leases
    workers.cluster.stop("w-0")
    landed = collect_all(pool, 2)
    assert {landing.worker for landing in landed} == {"w-1"}
    workers.cluster.resume("w-0")
    assert collect(pool, 20.0) == []


def test_a_worker_that_is_only_slow_is_cleared_by_the_probe_and_its_late_answer_is_dropped():
    workers = Workers(lambda worker, ticket: LIMITS.lease + 0.5 if worker == "w-0" and ticket.step == 1 else 1.0)
    pool = workers.pool(1)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 1, 0))
    assert collect(pool, 1.5 + LIMITS.lease + 0.9) == []
    assert pool.counts.late == 1
    assert pool.counts.deaths == 0
    assert pool.workers()[0].state is State.READY


def test_a_worker_is_not_given_up_for_long_groups_before_any_duration_is_known():
    workers = Workers(lambda worker, ticket: 10 * LIMITS.lease)
    pool = workers.pool(1, limits=dataclasses.replace(LIMITS, patience=12 * LIMITS.lease))
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 1, 0))
    collect_all(pool, 1)
    assert pool.counts.deaths == 0


def test_a_worker_that_keeps_its_old_weights_is_never_ready_with_the_new_ones():
    workers = Workers()
    workers.keeps_weights = {"w-0"}
    pool = workers.pool(2)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 4, 0) + tickets(2, 4, 1))
    collect_all(pool, 4)
    pool.publish(weights(1), probe(1))
    assert {landing.worker for landing in collect_all(pool, 4)} <= {"w-1", "w-2"}
    assert pool.counts.lies == 1
    assert all(ticket.step == 1 for ticket in workers.leased("w-0"))


@pytest.mark.parametrize("fails", [False, True])
def test_a_worker_whose_weights_are_withdrawn_while_it_loads_them_loads_others(fails: bool):
    workers = Workers()
    missing = Plan(seconds=0.5, error="RolloutError: version 0 of the weights is not in the store")
    workers.cluster = FakeCluster(
        lambda worker, method, args: (
            missing if fails and (method, args[:1]) == ("push", (0,)) else workers.script(worker, method, args)
        )
    )
    pool = workers.pool(1)
    pool.publish(weights(0), probe(0))
    collect(pool, 1.2)  # it loads them
    pool.publish(weights(1), probe(1))
    pool.withdraw(weights(0))
    pool.submit(tickets(2, 2, 1))
    collect_all(pool, 2)
    assert pool.counts.deaths == 0


def test_an_answer_from_other_weights_is_dropped_and_its_worker_is_given_up():
    workers = Workers()
    workers.rewrite = lambda worker, ticket, rollouts: (
        rollouts_of(ticket, policy_version=99) if worker == "w-0" else rollouts
    )
    pool = workers.pool(2)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 4, 0))
    landed = collect_all(pool, 4)
    assert all(rollout.version_max == 0 for landing in landed for rollout in landing.rollouts)
    assert pool.counts.lies == 1


def slow_last(worker: str, ticket: Ticket) -> float:
    """One worker takes long for one ticket of step 2, but not as long as a lease."""
    return 4.9 if worker == "w-0" and ticket.step == 2 else 0.1


def test_an_idle_worker_takes_a_second_lease_of_a_ticket_that_takes_long():
    workers = Workers(slow_last)
    pool = workers.pool(2)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 40, 0))
    collect_all(pool, 40)
    begun = workers.cluster.now()
    pool.submit(tickets(2, 2, 0))
    collect_all(pool, 2)
    assert workers.cluster.now() - begun < 4.0  # the 95th percentile of durations is 2 s
    assert pool.counts.backups == 1
    collect(pool, 10.0)
    assert pool.counts.duplicates == 1  # the slow answer came too, and was equal


@pytest.mark.parametrize("exact", [True, False])
def test_two_different_answers_stop_the_run_only_if_the_engine_is_exact(exact: bool):
    workers = Workers(slow_last)

    def corrupt(worker: str, ticket: Ticket, rollouts: tuple) -> tuple:
        damaged = tuple(dataclasses.replace(rollout, behavior_logps=(-1.0, -2.0, -3.5)) for rollout in rollouts)
        return damaged if worker == "w-0" and ticket.step == 2 else rollouts

    workers.rewrite = corrupt
    pool = workers.pool(2, exact=exact)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 40, 0))
    collect_all(pool, 40)
    pool.submit(tickets(2, 2, 0))
    collect_all(pool, 2)
    if exact:
        with pytest.raises(RolloutError, match=r"ticket train 2/0/0.*w-0"):
            collect(pool, 10.0)
    else:
        collect(pool, 10.0)
    assert pool.counts.redrawn_differs == 1


def test_the_run_stops_when_too_few_workers_have_restarts_left():
    workers = Workers(lambda worker, ticket: 1e9)
    pool = workers.pool(1)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 1, 0))
    with pytest.raises(RolloutError, match=r"0 of 1 .* cluster.min_workers is 1.*not sampled.*probe.*cluster.lease"):
        collect(pool, 1e6)
    assert pool.counts.deaths == 6


def test_an_idle_worker_that_is_stopped_is_noticed_before_there_is_work():
    workers = Workers()
    pool = workers.pool(1)
    pool.publish(weights(0), probe(0))
    collect(pool, 5.0)
    workers.cluster.stop("w-0")
    collect(pool, 3 * LIMITS.idle)
    assert pool.counts.deaths == 1
    pool.submit(tickets(1, 1, 0))
    assert collect_all(pool, 1)[0].worker == "w-1"


def test_the_report_says_who_waits_for_whom():
    workers = Workers(lambda worker, ticket: 4.0)
    pool = workers.pool(1)
    pool.publish(weights(0), probe(0))
    pool.submit([*tickets(1, 1, 0), *tickets(2, 1, 1)])
    collect(pool, 2.0)
    leased, unpublished = pool.waiting()
    assert (leased.ticket, leased.on, round(leased.seconds, 1)) == (("train", 1, 0, 0), "w-0", 0.5)
    assert (unpublished.ticket, unpublished.on) == (("train", 2, 0, 0), "weights 1, not published yet")
    assert pool.workers()[0].doing == "sample with weights 0"


def test_a_forgotten_ticket_does_not_land():
    workers = Workers()
    pool = workers.pool(1)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 2, 0))
    collect(pool, 1.6)
    pool.forget([each.key for each in tickets(1, 2, 0)])
    assert collect(pool, 10.0) == []
    assert pool.counts.late == 2


def test_a_worker_without_room_waits_for_a_node_and_the_others_sample_meanwhile():
    workers = Workers()
    workers.set_room(1)
    pool = workers.pool(2, min_workers=1, limits=dataclasses.replace(LIMITS, start=3.0))
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 4, 0))
    collect_all(pool, 4)
    assert collect(pool, 30.0) == []  # ten times the time that a worker with room has to start
    assert pool.counts.deaths == 0
    assert pool.take_faults() == ["w-1 waits for room: 2 workers, and there is room for 1."]
    workers.set_room(2)
    collect(pool, 3.0)
    assert pool.take_faults() == ["w-1 has room again."]
    pool.submit(tickets(2, 4, 0))
    collect_all(pool, 4)
    assert [len(workers.leased(name)) for name in ("w-0", "w-1")] == [6, 2]


@pytest.mark.parametrize("returns", [True, False])
def test_a_node_that_leaves_may_come_back_within_the_patience(returns: bool):
    workers, limits = Workers(), dataclasses.replace(LIMITS, patience=60.0)
    pool = workers.pool(2, min_workers=2, limits=limits)
    pool.publish(weights(0), probe(0))
    pool.submit(tickets(1, 4, 0))
    collect_all(pool, 2)
    workers.set_room(1)
    workers.cluster.die("w-1", "its node has left")
    left = workers.cluster.now()
    if returns:
        collect_all(pool, 2)
        collect(pool, limits.patience - 10.0)
        workers.set_room(2)
        collect(pool, limits.patience)
        pool.submit(tickets(2, 4, 0))
        assert {landing.worker for landing in collect_all(pool, 4)} == {"w-0", "w-2"}
    else:
        with pytest.raises(RolloutError, match=r"only 1 of 2 .* at least 2 must have it: 2 workers, and there is room"):
            collect_all(pool, 9)
        assert workers.cluster.now() - left == pytest.approx(limits.patience, abs=4.0)
