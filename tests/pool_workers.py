"""Tickets and scripted workers for tests of the pool: a fake sampler behind `FakeCluster`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fake_cluster import FakeCluster, Plan

from ansatz.cluster.base import Role
from ansatz.cluster.health import Confirmation, Weights
from ansatz.rollout.base import Sampling
from ansatz.rollout.pool import Pool
from ansatz.rollout.ticket import Kind, Landed, Ticket
from ansatz.rollout.worker_set import Limits
from ansatz.types import Finish, Problem, Prompt, Rollout

SAMPLING = Sampling(num_samples=2, max_response_tokens=4)
LIMITS = Limits(probe=1.0, lease=5.0, start=20.0, idle=30.0, patience=5.0)
"""The patience is as short as a lease, so that the first leases, which take the patience, are as short as others."""


def probe(version: int) -> Confirmation:
    """What a sampler with the weights of a version reports."""
    return Confirmation(policy_version=10 * version, logps=(-1.0 - version,))


def weights(version: int) -> Weights:
    return Weights(version, f"w{version}")


def ticket(step: int, place: int, version: int, *, round: int = 0) -> Ticket:
    problem = Problem(id=f"{step}/{round}/{place}", question="?", answers=("5",), source="test", split="train")
    return Ticket(
        kind=Kind.TRAIN,
        step=step,
        round=round,
        place=place,
        version=version,
        weights=weights(version).fingerprint,
        sampling=SAMPLING,
        prompt=Prompt(problem=problem, text="?", token_ids=(1, 2)),
        entries=(place,),
    )


def rollouts_of(ticket: Ticket, *, policy_version: int | None = None) -> tuple[Rollout, ...]:
    """What an honest sampler gives: a function of the ticket."""
    version = probe(ticket.version).policy_version if policy_version is None else policy_version
    return tuple(
        Rollout(
            prompt=ticket.prompt,
            sample=sample,
            token_ids=(ticket.step, ticket.place, sample),
            behavior_logps=(-1.0, -2.0, -3.0),
            text="",
            finish=Finish.STOP,
            version_min=version,
            version_max=version,
            seed=0,
        )
        for sample in range(ticket.sampling.num_samples)
    )


class Workers:
    """Scripted hosts. seconds_of: how long a worker takes for a ticket; the tickets of a call come one by one.

    keeps_weights: workers that acknowledge a push and keep their weights. rewrite: changes what a worker answers.
    repeat: whether an answer is sent twice.
    """

    def __init__(self, seconds_of: Callable[[str, Ticket], float | None] = lambda worker, ticket: 1.0) -> None:
        self.seconds_of = seconds_of
        self.keeps_weights = set[str]()
        self.rewrite: Callable[[str, Ticket, tuple[Rollout, ...]], tuple[Rollout, ...]] | None = None
        self.version_of: dict[str, int] = {}
        self.push_s = 0.5
        self.repeat: Callable[[], bool] = lambda: False
        self.calls: list[tuple[str, str, Any]] = []
        self.cluster = FakeCluster(self.script)

    def script(self, worker: str, method: str, args: tuple[Any, ...]) -> Plan:
        self.calls.append((worker, method, args[0] if args else None))
        if method == "push":
            kept = worker in self.keeps_weights and worker in self.version_of
            self.version_of[worker] = self.version_of[worker] if kept else args[0]
            claimed = Confirmation(
                policy_version=probe(args[0]).policy_version, logps=probe(self.version_of[worker]).logps
            )
            return Plan(seconds=self.push_s, value=claimed)
        if method == "probe":
            return Plan(seconds=0.1, value=probe(self.version_of[worker]))
        emits, time = list[tuple[float, Any]](), 0.0
        for ticket in args[0]:
            seconds = self.seconds_of(worker, ticket)
            if seconds is None:
                return Plan(seconds=None, emits=emits)
            time += seconds
            rollouts = rollouts_of(ticket)
            answer = ticket.key, self.rewrite(worker, ticket, rollouts) if self.rewrite else rollouts
            emits += [(time, answer)] * (1 + self.repeat())
        return Plan(seconds=time, emits=emits)

    def pool(self, count: int, *, limits: Limits = LIMITS, **settings: Any) -> Pool:
        return Pool(self.cluster, Role(name="w", target=""), num_workers=count, limits=limits, **settings)

    def set_room(self, workers: float) -> None:
        """Change how many workers have a place. Those that have one keep it: let some `die` as well."""
        self.cluster._room = workers
        self.cluster._place()

    def leased(self, worker: str) -> list[Ticket]:
        """Everything that a worker has been asked to sample."""
        return [
            ticket
            for name, method, tickets in self.calls
            if name == worker and method == "sample"
            for ticket in tickets
        ]


def turn(pool: Pool, timeout_s: float) -> None:
    """Do the work that is due, wait for events up to timeout_s, and handle them."""
    pool.handle(pool.events(min(timeout_s, pool.do_due())))


def collect(pool: Pool, timeout_s: float) -> list[Landed]:
    """Return the groups that have landed. Wait up to timeout_s for the first one."""
    until = pool._cluster.now() + timeout_s
    while not pool._landed and (left := until - pool._cluster.now()) > 0:
        turn(pool, left)
    return pool.take()


def collect_all(pool: Pool, count: int, *, limit_s: float = 1e4) -> list[Any]:
    """Collect until `count` tickets have landed."""
    landed = list[Any]()
    while len(landed) < count:
        more = collect(pool, limit_s)
        assert more, (pool.waiting(), pool.workers())
        landed += more
    return landed
