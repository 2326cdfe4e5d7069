"""Random histories of a run with workers on a virtual clock: the real schedule, ledger, pool, leases and health.

Answers come, come late and come twice. Workers die, hang, wake up and join. The run is saved and crashes, with or
without its ledger. Whatever happens, every ticket is trained exactly once and in order, with the weights that the law
names and with the answer that belongs to it.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from pool_workers import LIMITS, Workers, collect, probe, rollouts_of, ticket, weights

from ansatz.errors import RolloutError
from ansatz.loop.ledger import Ledger
from ansatz.loop.rollout_queue import weights_version_for
from ansatz.rollout.pool import Pool
from ansatz.rollout.ticket import Landed, Ticket, TicketKey

GROUPS = 2
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # the ledger is flushed to disk often
EVENTS = ["wait"] * 8 + ["die", "hang", "wake", "slow", "save", "crash", "crash without ledger"]


class History:
    """A run that trains steps as soon as their tickets have landed. `trained`: the answers of each step."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self._folder, self._draw = folder, draw
        self._lag = draw.choice((0, 1, 2, 4))
        self.trained: dict[int, list[Landed]] = {}
        self.counts = dict.fromkeys(
            ("deaths", "reopened", "late", "duplicates", "lies", "retrained", "reused", "too few workers"), 0
        )
        self._saved = 0
        self._start()

    def _start(self) -> None:
        """Begin with what was saved: the number of steps that are done. Everything else follows from it."""
        self._workers = Workers(self._seconds)
        self._workers.repeat = lambda: self._draw.random() < 0.05
        self._pool: Pool = self._workers.pool(
            3, limits=dataclasses.replace(LIMITS, restarts=self._draw.choice((2, 100)))
        )
        self._done, self._opened, self._slow = self._saved, self._saved, False
        self._ledger = Ledger(self._folder / "ledger")
        self._before = self._ledger.landed()
        self._waiting: dict[int, dict[TicketKey, Ticket]] = {}
        self._landed: dict[TicketKey, Landed] = {}
        steps = range(self._done + 1, self._done + self._lag + 2)
        for version in sorted({weights_version_for(step, lag=self._lag) for step in steps}):
            self._pool.publish(weights(version), probe(version))
        self._open()

    def _seconds(self, worker: str, ticket: Ticket) -> float:
        return self._draw.uniform(5.2, 5.9) if self._slow else self._draw.uniform(0.0, 0.2)

    def _open(self) -> None:
        for step in range(self._opened + 1, self._done + self._lag + 2):
            tickets = [ticket(step, place, weights_version_for(step, lag=self._lag)) for place in range(GROUPS)]
            self._waiting[step], self._opened = {each.key: each for each in tickets}, step
            new = list[Ticket]()
            for each in tickets:
                before = self._before.get(each.key)
                if before is not None and before.ticket == each:
                    self._landed[each.key] = before
                    self.counts["reused"] += 1
                else:
                    new.append(each)
            self._ledger.issue(new)
            self._pool.submit(new)

    def happen(self, event: str) -> None:
        alive = self._workers.cluster.alive
        self._slow = event == "slow"
        if event == "die" and alive:
            self._workers.cluster.die(self._draw.choice(alive))
        elif event == "hang" and alive:
            self._workers.cluster.stop(self._draw.choice(alive))
        elif event == "wake" and alive:
            self._workers.cluster.resume(self._draw.choice(alive))
        elif event == "save":
            self._saved = self._done
            self._ledger.forget(self._done)
        elif event.startswith("crash"):
            self._end()
            if event == "crash without ledger":
                shutil.rmtree(self._folder / "ledger", ignore_errors=True)
            self._start()
        too_few = False
        try:
            self._collect(self._draw.uniform(0.0, 1.5))
        except RolloutError as error:
            if "cluster.min_workers" not in str(error):
                raise
            too_few = True
        if too_few:
            self.counts["too few workers"] += 1
            self._end()
            self._start()

    def _collect(self, seconds: float) -> None:
        for landing in collect(self._pool, seconds):
            assert landing.ticket.key not in self._landed, "an answer was counted twice"
            assert landing.ticket.key in self._waiting[landing.ticket.step], "an answer to a trained ticket was counted"
            self._landed[landing.ticket.key] = landing
            self._ledger.land(landing)
        while (step := self._done + 1) in self._waiting and self._waiting[step].keys() <= self._landed.keys():
            self._train(step)

    def _train(self, step: int) -> None:
        tickets = self._waiting.pop(step)
        answers = [self._landed.pop(key) for key in tickets]
        for answer in answers:
            assert answer.ticket.version == max(0, step - 1 - self._lag)
            assert answer.rollouts == rollouts_of(answer.ticket)
        if step in self.trained:
            self.counts["retrained"] += 1
            assert [each.digest for each in self.trained[step]] == [each.digest for each in answers]
        self.trained[step] = answers
        self._pool.forget(tickets)
        self._done = step
        self._pool.publish(weights(step), probe(step))
        self._open()

    def _end(self) -> None:
        for name in ("deaths", "reopened", "late", "duplicates", "lies"):
            self.counts[name] += getattr(self._pool.counts, name)
        self._ledger.close()

    def finish(self) -> None:
        """Nothing more happens: all open steps can be trained."""
        target, self._slow = self._done + 3, False
        while self._done < target:
            for worker in self._workers.cluster.alive:
                self._workers.cluster.resume(worker)
            self._collect(10.0)
            assert self._workers.cluster.now() < 1e6, (self._pool.waiting(), self._pool.workers())
        self._end()


def run_histories(seeds: Iterable[int], num_events: int) -> Counter[str]:
    totals = Counter[str]()
    for seed in seeds:
        draw = random.Random(seed)
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            history = History(Path(folder), draw)
            for _ in range(num_events):
                history.happen(draw.choice(EVENTS))
            history.finish()
        assert sorted(history.trained) == list(range(1, len(history.trained) + 1))
        totals.update({**history.counts, "steps": len(history.trained)})
    return totals


def assert_everything_happened(totals: Mapping[str, int]) -> None:
    assert all(totals[name] > 50 for name in ("deaths", "reopened", "late", "retrained", "reused")), totals
    assert totals["duplicates"] > 0, totals


def test_every_ticket_is_trained_once_and_in_order_in_sixty_histories():
    assert_everything_happened(run_histories(range(60), 200))


@pytest.mark.cluster
@pytest.mark.parametrize("half", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_ticket_is_trained_once_and_in_order_in_up_to_two_thousand_histories(half: int):
    with ProcessPoolExecutor(2) as processes:
        halves = processes.map(run_histories, (range(half), range(half, 2 * half)), (200, 200))
    assert_everything_happened(sum(halves, Counter()))
