"""The pool on real processes: kills, stops and lies."""

from __future__ import annotations

import functools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pool_workers import collect, probe, rollouts_of, ticket, turn, weights

from ansatz.cluster.base import Role
from ansatz.cluster.health import RestartBudget
from ansatz.cluster.ray import RayCluster
from ansatz.rollout import worker_set
from ansatz.rollout.pool import Pool
from ansatz.rollout.ticket import Landed
from ansatz.rollout.worker_set import Limits

pytestmark = pytest.mark.cluster
GROUPS, LAG, LIMIT_S = 12, 2, 300.0


@pytest.fixture(scope="module")
def ray() -> Iterator[RayCluster]:
    """One Ray for all tests: each cluster of a test uses it."""
    owner = RayCluster()
    yield owner
    owner.close()


@pytest.fixture
def cluster(ray: RayCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    monkeypatch.setattr(worker_set, "RestartBudget", functools.partial(RestartBudget, max_delay_s=1.0))
    cluster = RayCluster()
    yield cluster
    pids = pids_of(cluster)
    cluster.close()
    assert within(10.0, lambda: not any(is_alive(pid) for pid in pids))


def pids_of(cluster: RayCluster) -> dict[int, str]:
    return {worker.process.pid: name for name, worker in cluster._workers.items() if worker.process is not None}


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not condition():
        time.sleep(0.05)
    return condition()


def pool_of(cluster: RayCluster, folder: Path, count: int, *, limits: Limits, **settings: Any) -> Pool:
    host = {"shortest": 0.02, "longest": 0.1, "log": str(folder), **settings}
    return Pool(cluster, Role(name="w", target="sleeping_host:Host", settings=host), num_workers=count, limits=limits)


def version_of(step: int) -> int:
    return max(0, step - 1 - LAG)


def run(pool: Pool, steps: int, fault: Callable[[], None] = lambda: None) -> list[Landed]:
    """Landings of some steps at lag 2. fault: called several times a second."""
    landed, opened, deadline = list[Landed](), 0, time.monotonic() + LIMIT_S
    pool.publish(weights(0), probe(0))
    for step in range(1, steps + 1):
        for opening in range(opened + 1, min(steps, step + LAG) + 1):
            pool.submit([ticket(opening, place, version_of(opening)) for place in range(GROUPS)])
            opened = opening
        while sum(landing.ticket.step == step for landing in landed) < GROUPS:
            assert time.monotonic() < deadline, (pool.waiting(), pool.workers())
            fault()
            landed += collect(pool, 0.05)
        pool.forget(ticket(step, place, version_of(step)).key for place in range(GROUPS))
        pool.publish(weights(step), probe(step))
    return landed


def assert_right(landed: list[Landed], steps: int) -> None:
    keys = [(landing.ticket.step, landing.ticket.place) for landing in landed]
    assert sorted(keys) == [(step, place) for step in range(1, steps + 1) for place in range(GROUPS)]
    assert all(landing.rollouts == rollouts_of(landing.ticket) for landing in landed)


def test_twenty_kills_reopen_the_leases_of_the_victims_within_two_seconds(cluster: RayCluster, tmp_path: Path):
    draw, kills, lost, slowest = random.Random(0), list[str](), 0, 0.0
    pool = pool_of(cluster, tmp_path, 3, limits=Limits(probe=5.0, lease=20.0, start=100.0, restarts=100))
    last_kill = time.monotonic()

    def kill() -> None:
        nonlocal last_kill, lost, slowest
        busy = [(pid, worker) for pid, worker in pids_of(cluster).items() if pool._book._of_worker.get(worker, ())]
        if len(kills) == 20 or not busy or time.monotonic() - last_kill < draw.uniform(0.2, 1.0):
            return
        pid, worker = draw.choice(busy)
        leases = len(pool._book._of_worker.get(worker, ()))
        os.kill(pid, signal.SIGKILL)
        last_kill = time.monotonic()
        while pool._book._of_worker.get(worker, ()):
            turn(pool, 0.02)
        kills.append(worker)
        lost, slowest = lost + leases, max(slowest, time.monotonic() - last_kill)

    steps = 60
    assert_right(run(pool, steps, kill), steps)
    assert len(kills) == 20
    assert slowest < 2.0
    assert pool.counts.deaths >= 20
    assert pool.counts.reopened <= lost


def test_a_stop_is_noticed_within_the_lease_and_late_answers_are_never_used(cluster: RayCluster, tmp_path: Path):
    limits = Limits(probe=4.0, lease=2.0, start=100.0, patience=2.0)
    pool = pool_of(cluster, tmp_path, 2, limits=limits, shortest=0.3, longest=0.5)
    stopped, noticed = dict[int, float](), dict[int, float]()

    def stop_and_continue() -> None:
        busy = [pid for pid, worker in pids_of(cluster).items() if pool._book._of_worker.get(worker, ())]
        if not stopped and len(busy) == 2:
            os.kill(busy[0], signal.SIGSTOP)
            stopped[busy[0]] = time.monotonic()
        for pid, since in stopped.items():
            if pid not in noticed and any("is suspect" in fault for fault in pool.take_faults()):
                noticed[pid] = time.monotonic() - since
                os.kill(pid, signal.SIGCONT)

    assert_right(run(pool, 4, stop_and_continue), 4)
    assert [seconds < limits.lease + 1.0 for seconds in noticed.values()] == [True]
    assert within(10.0, lambda: collect(pool, 0.05) == [] and pool.counts.late > 0)


def test_a_worker_that_keeps_its_old_weights_samples_nothing_with_the_new_ones(cluster: RayCluster, tmp_path: Path):
    pool = pool_of(cluster, tmp_path, 2, limits=Limits(start=100.0, restarts=100), liar=True)
    assert_right(run(pool, 8), 8)
    assert pool.counts.lies == 1
    (log,) = tmp_path.glob("*-liar")
    assert set(log.read_text().split()) == {"0"}
