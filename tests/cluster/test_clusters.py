"""The contract of all clusters, the fake included."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from doubling import Host
from fake_cluster import FakeCluster, Plan
from inline_cluster import InlineCluster

from ansatz.cluster.base import Answered, Cluster, Died, Event, Failed, Joined, Partial, Role

WAIT_S = 60.0
ROLE = Role(name="test", target="doubling:Host")


def _script(worker: str, method: str, args: tuple[Any, ...]) -> Plan:
    emitted: list[tuple[float, Any]] = []
    try:
        value = getattr(Host(), method)(*args, lambda item: emitted.append((0.1, item)))
    except BaseException as error:
        failure = Failed.of(worker, 0, error)
        return Plan(seconds=0.2, error=failure.error, fatal=failure.fatal)
    return Plan(seconds=0.2, value=value, emits=emitted)


def inline() -> Cluster:
    return InlineCluster()


def fake() -> Cluster:
    return FakeCluster(_script)


def ray() -> Cluster:
    from ansatz.cluster.ray import RayCluster

    return RayCluster()


@pytest.fixture(scope="module")
def shared_ray() -> Iterator[Cluster]:
    """One Ray for all tests: each cluster of a test uses it."""
    owner = ray()
    yield owner
    owner.close()


@pytest.fixture(params=[inline, fake, pytest.param(ray, marks=pytest.mark.cluster)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    make: Callable[[], Cluster] = request.param
    if make is ray:
        request.getfixturevalue("shared_ray")
    cluster = make()
    yield cluster
    cluster.close()


def until(cluster: Cluster, kind: type, *, number: int = 1) -> list[Event]:
    """All events up to the last of `number` events of a kind."""
    deadline, events = time.monotonic() + WAIT_S, list[Event]()
    while sum(isinstance(event, kind) for event in events) < number:
        assert time.monotonic() < deadline, events
        events += cluster.events(1.0)
    return events


def test_a_worker_joins_and_answers_with_all_that_it_emits(cluster: Cluster):
    (worker,) = cluster.start(ROLE, 1)
    assert until(cluster, Joined) == [Joined(worker)]
    call = cluster.call(worker, "double", [1, 2, 3])
    emitted = [Partial(worker, call, value) for value in (2, 4, 6)]
    assert until(cluster, Answered) == [*emitted, Answered(worker, call, 3)]


def test_calls_of_a_worker_run_one_after_the_other(cluster: Cluster):
    (worker,) = cluster.start(ROLE, 1)
    until(cluster, Joined)
    first, second = cluster.call(worker, "double", [1]), cluster.call(worker, "double", [5])
    assert first != second
    assert until(cluster, Answered, number=2) == [
        Partial(worker, first, 2),
        Answered(worker, first, 1),
        Partial(worker, second, 10),
        Answered(worker, second, 1),
    ]


@pytest.mark.parametrize(("kind", "fatal"), [("bug", False), ("exit", False), ("engine", False), ("user", True)])
def test_an_exception_is_reported_and_the_worker_lives(cluster: Cluster, kind: str, fatal: bool):
    (worker,) = cluster.start(ROLE, 1)
    until(cluster, Joined)
    call = cluster.call(worker, "fail", kind)
    (failed,) = until(cluster, Failed)
    assert isinstance(failed, Failed)
    assert (failed.call, failed.fatal) == (call, fatal)
    assert "as requested" in failed.error
    cluster.call(worker, "double", [])
    until(cluster, Answered)


def test_a_killed_worker_dies_and_its_name_is_not_used_again(cluster: Cluster):
    (worker,) = cluster.start(ROLE, 1)
    until(cluster, Joined)
    cluster.kill(worker)
    (died,) = until(cluster, Died)
    assert died.worker == worker
    cluster.kill(worker)  # once more: ignored
    assert cluster.events(0.0) == []
    assert cluster.start(ROLE, 1) != [worker]


def test_the_clock_does_not_go_backwards(cluster: Cluster):
    before = cluster.now()
    cluster.events(0.05)
    assert cluster.now() >= before
