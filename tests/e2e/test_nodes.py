"""A whole run on a real Ray of a head and two nodes: a node is lost and comes back, and the driver is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from gated_host import FOLDER
from toy_runs import REPOSITORY, different_results, toy_config, toy_recipe

from ansatz.cluster.base import Joined, Role
from ansatz.cluster.ray import RayCluster
from ansatz.errors import RolloutError
from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]
CHANGES: dict[str, Any] = {
    "data": {"sft": None},
    "rewards": {f"{REPOSITORY}/tests/loop/user_rewards.py:every_other": {}},
    "rollout": {"lag": 2, "prompts_per_step": 8},
    "algorithm": {"preset": "grpo", "correction": "truncate"},
    "train": {"steps": 12},
    "evaluate": {"every": 6},
    "save": {"every": 4, "tensorboard": False},
}
START = "from ansatz.cli.main import main; main()"
COMMAND = f"from ansatz.loop.on_cluster import workers; workers.HOST = 'gated_host:build_host'; {START}"


class Nodes:
    """A head without room for workers, and nodes with one CPU each, on this machine."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        small = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
        self._settings = {"num_cpus": 1, "object_store_memory": small["object_store_memory"]}
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
        self.address = self._cluster.address

    def add(self) -> Any:
        return self._cluster.add_node(**self._settings)

    def remove(self, node: Any) -> None:
        """Without grace, as when a machine loses its power."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that holds workers. They inherit its name, and the path of tests, from their nodes."""
    folder = tmp_path_factory.mktemp("gate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")]))
        yield folder


@pytest.fixture(scope="module")
def nodes(gate: Path) -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    nodes.close()
    assert workers() == []


def workers() -> list[str]:
    """What runs below the nodes, which are children of this process, except Ray's agents."""
    names = list[str]()
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name().startswith("ray::") and process.status() != psutil.STATUS_ZOMBIE:
                names.append(process.name())
        except psutil.NoSuchProcess:
            continue
    return [name for name in names if not name.endswith("Agent")]


def wait_for(
    condition: Callable[[], bool], driver: subprocess.Popen[Any] | None = None, limit_s: float = 120.0
) -> float:
    """Seconds until the condition holds."""
    begun = time.monotonic()
    while not condition():
        assert driver is None or driver.poll() is None, "the run has ended"
        assert time.monotonic() - begun < limit_s
        time.sleep(0.02)
    return time.monotonic() - begun


def start(log: Path, *arguments: str | Path) -> subprocess.Popen[Any]:
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, "train", *map(str, arguments)], cwd=REPOSITORY, stdout=file, stderr=file
        )


def rows_of(run: Path) -> int:
    path = run / "rl" / "metrics.jsonl"
    return len(read_jsonl(path)) if path.exists() else 0


def test_a_lost_node_and_a_lost_driver_change_no_bit(tmp_path: Path, nodes: Nodes, gate: Path):
    (tmp_path / "whole").mkdir()
    whole = run_pipeline(toy_config(tmp_path / "whole", CHANGES))
    _, second = nodes.add(), nodes.add()
    cluster = {"workers": 2, "min_workers": 1, "address": nodes.address}
    recipe, run, log = (
        toy_recipe(tmp_path, {**CHANGES, "cluster": cluster}),
        tmp_path / "runs" / "toy",
        tmp_path / "log",
    )
    hold, held = gate / "hold", lambda: {int(path.name) for path in gate.iterdir() if path.name.isdecimal()}

    hold.touch()
    driver = start(log, recipe)
    try:
        wait_for(lambda: len(held()) == 2, driver)  # both workers are in the middle of sampling
        before = held()
        nodes.remove(second)
        hold.unlink()
        assert wait_for(lambda: rows_of(run) >= 1, driver) < 30.0  # sampling has resumed
        hold.touch()
        nodes.add()
        joined_s = wait_for(lambda: len(held() - before) == 1, driver)  # a worker on the new node samples
        print(f"a worker on the new node sampled after {joined_s:.1f} s")  # mostly the start of its process
        assert "groups are open again" in log.read_text()
        assert 1 <= rows_of(run) < 12
    finally:
        driver.kill()
        driver.wait()
    wait_for(lambda: not workers(), limit_s=10.0)
    hold.unlink()
    resumed = start(log, "--resume", run)
    assert resumed.wait(timeout=240) == 0, log.read_text()[-3000:]
    assert different_results(whole, run) == []


def test_a_request_that_no_node_can_hold_fails_within_five_seconds(tmp_path: Path, nodes: Nodes):
    begun = time.monotonic()
    cluster = {"workers": 3, "threads": 2, "address": nodes.address}
    with pytest.raises(RolloutError, match=r"3 rollout workers x 2 = 6 CPU, and the cluster has \d CPU"):
        run_pipeline(toy_config(tmp_path, {**CHANGES, "cluster": cluster}))
    assert time.monotonic() - begun < 5.0
    assert not (tmp_path / "runs").exists()


def test_ranks_start_again_where_they_were_although_a_worker_waits_for_room(nodes: Nodes):
    nodes.add()
    role = Role(name="rank", target="builtins:object", together=True)
    with closing(RayCluster(nodes.address)) as cluster, closing(RayCluster(nodes.address)) as other:
        count = round(sum(node.resources.get("CPU", 0.0) for node in cluster.nodes() if node.alive))
        ranks = start_and_join(cluster, role, count)  # they take everything
        (worker,) = other.start(Role(name="worker", target="builtins:object"), 1)
        for rank in ranks:
            cluster.kill(rank)
        start_and_join(cluster, role, count)
        assert other.waits_for_room(worker)


def start_and_join(cluster: RayCluster, role: Role, count: int) -> list[str]:
    workers, joined = cluster.start(role, count), set[str]()

    def have_joined() -> bool:
        joined.update(event.worker for event in cluster.events(0.1) if isinstance(event, Joined))
        return joined == set(workers)

    wait_for(have_joined)
    return workers
