"""Tickets on a pool as the rollout queue uses them: weights come and go while workers load them."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import closing
from typing import Any

from fake_cluster import FakeCluster, Plan
from fake_trainer import OneNumber
from fake_weight_store import FakeWeightStore
from pool_workers import Workers, rollouts_of, ticket

from ansatz.rollout.pooled_tickets import PooledTickets


def test_a_worker_that_was_loading_weights_whose_files_are_gone_loads_others():
    workers, store, loads = Workers(), FakeWeightStore(), threading.Event()

    def script(worker: str, method: str, args: tuple[Any, ...]) -> Plan:
        if method == "push" and args[0] == 0:
            store.close()
            loads.set()
            return Plan(seconds=0.5, error="RolloutError: version 0 of the weights is not in the store")
        return workers.script(worker, method, args)

    workers.cluster = FakeCluster(script)
    settings = {"on_landed": lambda landing: None, "on_event": lambda step, text: None, "stall_s": 600.0}
    with closing(PooledTickets(workers.pool(1), store, **settings)) as source:
        source.publish(0, OneNumber(version=0, value=0.0))
        assert loads.wait(60.0)
        fingerprint = source.publish(1, OneNumber(version=10, value=1.0))
        tickets = [dataclasses.replace(ticket(2, place, 1), weights=fingerprint) for place in range(2)]
        source.submit(tickets)
        assert source.wait(tickets, lambda rollout: None) == [rollouts_of(each) for each in tickets]
        assert source.metrics()["perf/workers/deaths"] == 0
