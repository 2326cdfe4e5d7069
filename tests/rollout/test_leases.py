"""The book of leases: nothing is lost, nothing lands twice, and late answers do not count."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansatz.rollout.leases import Durations, Landing, LeaseBook


def book(*tickets: int, batch: str = "a") -> LeaseBook[int]:
    leases: LeaseBook[int] = LeaseBook()
    for ticket in tickets:
        leases.add(ticket, batch, (ticket,))
    return leases


def test_tickets_are_leased_in_order_and_once():
    leases = book(3, 1, 2)
    assert leases.lease("w", "a", 2, now=0.0, until=1.0) == [1, 2]
    assert leases.lease("v", "a", 2, now=0.0, until=1.0) == [3]
    assert leases.next_batch() is None


def test_the_first_answer_wins_and_later_ones_are_compared_with_it():
    leases = book(1)
    leases.lease("w", "a", 1, now=0.0, until=9.0)
    leases.lease_again("v", "a", begun_by=5.0, until=9.0)
    assert leases.land(1, "v", "x") is Landing.FIRST
    assert leases.land(1, "w", "x") is Landing.EQUAL
    assert leases.land(1, "w", "y") is Landing.DIFFERENT


def test_an_answer_after_the_lease_has_ended_is_late():
    leases = book(1)
    leases.lease("w", "a", 1, now=0.0, until=1.0)
    assert leases.expire(0.9) == []
    assert leases.expire(1.0) == [1]
    assert leases.land(1, "w", "x") is Landing.LATE
    assert leases.lease("v", "a", 1, now=2.0, until=3.0) == [1]
    assert leases.land(1, "v", "x") is Landing.FIRST


def test_an_answer_to_a_forgotten_ticket_is_late():
    leases = book(1)
    leases.lease("w", "a", 1, now=0.0, until=1.0)
    leases.forget([1])
    assert leases.land(1, "w", "x") is Landing.LATE
    assert leases.expire(5.0) == []


def test_only_tickets_without_another_lease_are_open_again_when_a_worker_dies():
    leases = book(1, 2)
    leases.lease("w", "a", 1, now=0.0, until=9.0)
    leases.lease("w", "a", 1, now=1.0, until=9.0)
    leases.lease_again("v", "a", begun_by=0.0, until=9.0)
    assert leases.drop_worker("w") == [2]
    assert leases.waiting() == {1: ("v",), 2: ()}


def test_second_leases_go_to_the_oldest_tickets_of_other_workers():
    leases = book(1, 2)
    leases.lease("w", "a", 1, now=0.0, until=9.0)
    leases.lease("v", "a", 1, now=1.0, until=9.0)
    assert leases.lease_again("w", "a", begun_by=2.0, until=9.0) == [2]
    assert leases.lease_again("u", "a", begun_by=0.5, until=9.0) == [1]
    assert leases.lease_again("x", "a", begun_by=2.0, until=9.0) == []  # both have two


def test_a_ticket_is_added_once():
    with pytest.raises(ValueError, match="added before"):
        book(1, 1)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("laedbf"), st.integers(0, 3), st.integers(0, 7)), max_size=60))
def test_every_ticket_lands_exactly_once_whatever_happens(history: list[tuple[str, int, int]]):
    leases, now, landed = book(*range(8)), 0.0, list[int]()
    for action, who, ticket in history:
        worker, now = f"w{who}", now + 1.0
        if action == "l":
            leases.lease(worker, "a", 2, now=now, until=now + 5.0)
        elif action == "a" and leases.land(ticket, worker, f"digest of {ticket}") is Landing.FIRST:
            landed.append(ticket)
        elif action == "e":
            leases.expire(now)
        elif action == "d":
            leases.drop_worker(worker)
        elif action == "b":
            leases.lease_again(worker, "a", begun_by=now - 2.0, until=now + 5.0)
    for worker in ("w0", "w1", "w2", "w3"):
        leases.drop_worker(worker)
    last = leases.lease("last", "a", 8, now=now, until=now + 1.0)
    landed += [ticket for ticket in last if leases.land(ticket, "last", f"digest of {ticket}") is Landing.FIRST]
    assert sorted(landed) == list(range(8))


def test_quantiles_need_enough_durations_and_follow_the_recent_ones():
    durations = Durations(memory=10, enough=5)
    for seconds in range(4):
        durations.add(float(seconds))
    assert durations.quantile(0.5) is None
    for seconds in range(100, 110):
        durations.add(float(seconds))
    assert durations.quantile(0.0) == 100.0
    assert durations.quantile(0.99) == 109.0
