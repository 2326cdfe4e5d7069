"""Faults of workers at random, on a virtual clock: they change the order and the time of landings, and no result."""

from __future__ import annotations

import random

import pytest
from pool_workers import LIMITS, Workers, collect, probe, rollouts_of, ticket, weights

from ansatz.rollout.ticket import Landed

STEPS, GROUPS, LAG = 6, 12, 2


def version_of(step: int) -> int:
    return max(0, step - 1 - LAG)


def run(workers: Workers, count: int, *, fault=lambda: None) -> tuple[list[Landed], float]:
    """The landings of six steps at lag 2, with a fault between collections, and the seconds that they took."""
    pool = workers.pool(count)
    landed: list[Landed] = []
    opened = 0
    pool.publish(weights(0), probe(0))
    for step in range(1, STEPS + 1):
        for opening in range(opened + 1, min(STEPS, step + LAG) + 1):
            pool.submit([ticket(opening, place, version_of(opening)) for place in range(GROUPS)])
            opened = opening
        while sum(landing.ticket.step == step for landing in landed) < GROUPS:
            fault()
            landed += collect(pool, 0.7)
            assert workers.cluster.now() < 1e4, (pool.waiting(), pool.workers())
        pool.publish(weights(step), probe(step))
    return landed, workers.cluster.now()


def assert_complete(landed: list[Landed]) -> None:
    keys = [(landing.ticket.step, landing.ticket.place) for landing in landed]
    assert sorted(keys) == [(step, place) for step in range(1, STEPS + 1) for place in range(GROUPS)]
    assert all(landing.rollouts == rollouts_of(landing.ticket) for landing in landed)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_delays_change_the_order_of_landings_and_no_result(seed: int, count: int):
    randomness = random.Random(f"{seed}/{count}")
    landed, _ = run(Workers(lambda worker, ticket: randomness.uniform(0.0, 0.2)), count)
    assert_complete(landed)
    order = [(landing.ticket.step, landing.ticket.place) for landing in landed]
    assert count == 1 or order != sorted(order)


@pytest.mark.parametrize("seed", range(5))
def test_twenty_deaths_lose_nothing_but_the_leases_of_the_victims(seed: int):
    randomness, workers = random.Random(seed), Workers(lambda worker, ticket: 1.0)
    killed = list[str]()

    def kill() -> None:
        alive = workers.cluster.alive
        if alive and len(killed) < 20 and randomness.random() < 0.3:
            killed.append(randomness.choice(alive))
            workers.cluster.die(killed[-1])

    pool_of = workers.pool
    pools = list[object]()

    def pool(count: int):
        pools.append(pool_of(count, min_workers=1))
        return pools[-1]

    workers.pool = pool  # pyright: ignore[reportAttributeAccessIssue]
    landed, _ = run(workers, 6, fault=kill)
    assert_complete(landed)
    counts = pools[0].counts  # pyright: ignore[reportAttributeAccessIssue]
    assert counts.deaths >= 8
    sampled = sum(len(workers.leased(f"w-{index}")) for index in range(60))
    assert sampled <= STEPS * GROUPS + counts.reopened + counts.backups


@pytest.mark.parametrize("seed", range(5))
def test_stops_and_lies_are_noticed_and_their_answers_are_not_used(seed: int):
    randomness, workers = random.Random(seed), Workers(lambda worker, ticket: 0.5)
    workers.keeps_weights = {"w-1"}
    stopped = list[str]()

    def stop_or_resume() -> None:
        if stopped and randomness.random() < 0.2:
            workers.cluster.resume(stopped.pop())
        elif workers.cluster.alive and randomness.random() < 0.05:
            stopped.append(workers.cluster.alive[0])
            workers.cluster.stop(stopped[-1])

    landed, _ = run(workers, 3, fault=stop_or_resume)
    assert_complete(landed)
    assert {ticket.version for ticket in workers.leased("w-1")} <= {0}  # it kept its first weights


def test_a_stop_is_noticed_within_the_lease_and_a_second():
    workers = Workers(lambda worker, ticket: 0.5)
    pool = workers.pool(1)
    pool.publish(weights(0), probe(0))
    pool.submit([ticket(1, 0, 0)])
    collect(pool, 1.6)
    workers.cluster.stop("w-0")
    collect(pool, LIMITS.lease + 1.0 - 0.1)
    assert "is suspect" in pool.take_faults()[0]
