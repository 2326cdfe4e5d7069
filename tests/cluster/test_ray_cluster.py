"""Ray's processes on this machine: process trees are killed, nothing is left behind, and signals stay the run's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from toy_runs import REPOSITORY

from ansatz.cluster.base import Answered, Died, Event, Joined, Needs, Partial, Role
from ansatz.cluster.ray import RayCluster
from ansatz.errors import RolloutError

pytestmark = pytest.mark.cluster
ROLE = Role(name="test", target="doubling:Host")


def until(cluster: RayCluster, kind: type) -> list[Event]:
    deadline, events = time.monotonic() + 60.0, list[Event]()
    while not any(isinstance(event, kind) for event in events):
        assert time.monotonic() < deadline, events
        events += cluster.events(1.0)
    return events


def pids_of(cluster: RayCluster) -> tuple[str, int, int]:
    """A new worker, with its process and that of its child."""
    (worker,) = cluster.start(ROLE, 1)
    until(cluster, Joined)
    cluster.call(worker, "pids")
    events = until(cluster, Answered)
    (child,) = [event.value for event in events if isinstance(event, Partial)]
    (parent,) = [event.value for event in events if isinstance(event, Answered)]
    return worker, parent, child


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


@pytest.fixture(scope="module")
def cluster():
    handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    cluster = RayCluster()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # Ray replaces the handler
    signal.signal(signal.SIGTERM, handler)
    yield cluster
    folder = Path(cluster._folder)
    assert folder.exists()
    assert folder.stat().st_mode & 0o777 == 0o700
    cluster.close()
    assert not folder.exists()
    assert not [process for process in psutil.Process().children(recursive=True) if "ray" in process.name()]


def test_no_cluster_on_the_ray_of_this_machine_waits_for_a_lost_head(cluster: RayCluster):
    second = RayCluster()  # as the workers of a run whose trainer ranks have started Ray
    assert [each._alive.patience_s for each in (cluster, second)] == [0.0, 0.0]
    second.close()


def test_a_killed_worker_ends_with_its_children_even_if_it_is_stopped(cluster: RayCluster):
    worker, parent, child = pids_of(cluster)
    os.kill(parent, signal.SIGSTOP)
    cluster.kill(worker)
    assert until(cluster, Died) == [Died(worker, "killed")]
    assert within(5.0, lambda: is_gone(parent) and is_gone(child))


def test_the_death_of_an_idle_worker_is_noticed(cluster: RayCluster):
    worker, parent, _ = pids_of(cluster)
    os.kill(parent, signal.SIGKILL)
    begun = time.monotonic()
    (died,) = until(cluster, Died)
    assert died.worker == worker
    assert time.monotonic() - begun < 2.0


def test_a_worker_that_cannot_be_made_dies_with_the_reason(cluster: RayCluster):
    cluster.start(Role(name="test", target="doubling:Nobody"), 1)
    (died,) = until(cluster, Died)
    assert isinstance(died, Died)
    assert died.cause == "ActorDiedError: AttributeError: module 'doubling' has no attribute 'Nobody'"


def test_a_worker_without_a_gpu_to_run_on_is_refused_with_the_sum(cluster: RayCluster):
    begun = time.monotonic()
    role = Role(name="test", target="doubling:Host", needs=Needs(gpus=2), together=True)
    with pytest.raises(RolloutError, match=r"3 test processes x 2 = 6 GPU, and the cluster has 0 GPU"):
        cluster.start(role, 3)
    assert time.monotonic() - begun < 5.0


def driver_of(*lines: str) -> subprocess.Popen[str]:
    """A process of its own that has a cluster."""
    script = "\n".join(["import time", "from test_ray_cluster import *", "cluster = RayCluster()", *lines])
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests"), str(Path(__file__).parent)])
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_nothing_is_printed_about_workers_that_were_killed_on_purpose():
    driver = driver_of(
        "idle, busy = pids_of(cluster)[0], pids_of(cluster)[0]",
        "cluster.call(busy, 'double', [*range(10**6)])",
        "until(cluster, Partial)",
        "cluster.kill(idle)",
        "cluster.kill(busy)",
        "time.sleep(3)",  # Ray's report of a crash would arrive in less than a second
        "cluster.close()",
    )
    output, _ = driver.communicate(timeout=120)
    assert driver.returncode == 0, output
    assert "died" not in output, output


def test_no_process_is_left_when_the_driver_is_killed():
    driver = driver_of("print(*pids_of(cluster)[1:], flush=True)", "time.sleep(600)")
    assert driver.stdout is not None
    parent, child = (int(pid) for pid in driver.stdout.readline().split())
    tree = [process.pid for process in psutil.Process(driver.pid).children(recursive=True)]
    assert {parent, child} < set(tree)
    driver.kill()
    driver.wait()
    left = within(10.0, lambda: all(is_gone(pid) for pid in tree))
    assert left, [psutil.Process(pid).cmdline() for pid in tree if not is_gone(pid)]
