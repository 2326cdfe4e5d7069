"""Whole runs on Ray workers: the same bits as in one process, whatever happens to the workers."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from toy_runs import REPOSITORY, toy_config

from ansatz.cluster.ray import RayCluster
from ansatz.loop.ledger import Ledger
from ansatz.loop.on_cluster import workers as workers_module
from ansatz.loop.pipeline import run_pipeline
from ansatz.rollout.ticket import Landed, TicketKey
from ansatz.track.jsonl import read_jsonl
from ansatz.train.checkpoint import list_checkpoints
from benchmarks.faults.fingerprint import untimed

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

CHANGES: dict[str, Any] = {
    "rewards": {f"{REPOSITORY}/tests/loop/user_rewards.py:every_other": {}},
    "rollout": {"lag": 2, "prompts_per_step": 8},
    "algorithm": {"preset": "grpo", "correction": "truncate"},
    "train": {"steps": 8},
    "evaluate": {"every": 4},
}


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    """One Ray for all runs of this file: a run uses the Ray that its process is connected to."""
    owner = RayCluster()
    yield
    owner.close()


def run(folder: Path, changes: dict[str, Any]) -> tuple[dict[str, str], list[Any]]:
    """Hashes of the last model and of all rollouts, and the metrics without times."""
    run_dir = run_pipeline(toy_config(folder, {**CHANGES, **changes}))
    stage = run_dir / "rl"
    files = [list_checkpoints(stage)[-1] / "model.safetensors", *sorted((stage / "samples").iterdir())]
    hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return hashes, untimed(read_jsonl(stage / "metrics.jsonl"))


@contextmanager
def recorded_landings() -> Iterator[list[TicketKey]]:
    """The keys of all tickets that land, in the order of landing."""
    order, land = list[TicketKey](), Ledger.land

    def record(self: Ledger, landing: Landed) -> None:
        order.append(landing.ticket.key)
        land(self, landing)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "land", record)
        yield order


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory):
    """The results in one process, and the order of landings."""
    with recorded_landings() as order:
        hashes, metrics = run(tmp_path_factory.mktemp("inline"), {})
    assert len(set(hashes.values())) == 1 + 3 * 8  # the weights; of each step the rollouts, groups and tokens
    return (hashes, metrics), order


def workers_of_this_process() -> list[psutil.Process]:
    found = list[psutil.Process]()
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name().startswith("ray::Actor") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.parametrize(("attempts", "fewest"), [(1, 1), pytest.param(5, 12, marks=pytest.mark.slow)])
def test_delays_change_the_order_of_landings_and_no_bit(
    tmp_path: Path, undisturbed, monkeypatch, attempts: int, fewest: int
):
    """Runs on one, two and three workers, which wait 0 to 200 ms before they report a group. In at least `fewest` of
    them the groups land in another order than in one process."""
    monkeypatch.setattr(workers_module, "HOST", "delayed_host:build_host")
    results, order = undisturbed
    num_other_orders = 0
    for attempt in range(attempts):
        for workers in (1, 2, 3):
            with recorded_landings() as landed:
                assert run(tmp_path / f"{attempt}-{workers}", {"cluster": {"workers": workers}}) == results
            assert sorted(landed) == sorted(order)
            num_other_orders += landed != order
    assert num_other_orders >= fewest, "the landings came in the same order, so this proves nothing"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_is_killed_or_stopped_changes_no_bit(tmp_path: Path, undisturbed, number: signal.Signals):
    """After three steps, 20 groups have landed, so that a lease no longer takes the patience."""
    metrics, hit = tmp_path / "runs" / "toy" / "rl" / "metrics.jsonl", list[int]()

    def harm() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not hit:
            if metrics.exists() and len(read_jsonl(metrics)) >= 3 and (workers := workers_of_this_process()):
                hit.append(workers[0].pid)
                os.kill(workers[0].pid, number)
            time.sleep(0.02)

    thread = threading.Thread(target=harm)
    thread.start()
    limits = {"workers": 2, "lease": 3.0, "start": 120.0, "stall": 400.0}
    assert run(tmp_path, {"cluster": limits}) == undisturbed[0]
    thread.join()
    assert hit
    deadline = time.monotonic() + 10  # a worker that was stopped may only be killed at the end of the run
    while (is_alive(hit[0]) or workers_of_this_process()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_alive(hit[0])
    assert workers_of_this_process() == []


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
