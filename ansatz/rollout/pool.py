"""Samples tickets on several workers. A worker that dies, hangs or lies costs time and changes no result.

Each worker hosts one sampler (`rollout.host`) with one version of the weights at a time. A free worker gets its share
of the open tickets of that version. If there are none, it loads the weights that open tickets need, or takes second
leases of tickets that take unusually long. Answers are reported group by group. Answers that are late, or come from
weights other than the ticket's, are dropped.

The pool uses no thread and no clock of its own: `do_due` does the work that is due, `events` waits for events of the
cluster, and `handle` handles them. Tests run the same code on a virtual clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from ansatz.cluster.base import Cluster, Event, Role
from ansatz.cluster.health import Confirmation, Weights
from ansatz.errors import RolloutError
from ansatz.rollout.leases import Durations, Landing, LeaseBook
from ansatz.rollout.ticket import Landed, Ticket, TicketKey, landed
from ansatz.rollout.worker_set import Limits, PoolCounts, Slot, WorkerRow, WorkerSet
from ansatz.types import Rollout

_BACKUP_AT = 0.95
"""A ticket gets a second lease once it takes longer than this quantile of all tickets."""
_LEASE_FACTOR = 4.0


class WaitingRow(NamedTuple):
    """One line of the report on a stall. on: the workers with a lease of the ticket, or why there is none."""

    ticket: TicketKey
    on: str
    seconds: float


class Pool:
    """cluster, role: the machines of the workers and their host. min_workers: the run stops with RolloutError when
    fewer are left whose budget of restarts is not spent.

    exact: the engine gives the same bits wherever it runs. Two different answers to a ticket then stop the run;
        otherwise they are counted.
    """

    def __init__(
        self,
        cluster: Cluster,
        role: Role,
        *,
        num_workers: int,
        min_workers: int = 1,
        limits: Limits = Limits(),
        exact: bool = True,
    ) -> None:
        self._cluster, self._exact = cluster, exact
        self._book: LeaseBook[TicketKey] = LeaseBook()
        self._tickets: dict[TicketKey, Ticket] = {}
        self._before_weights: dict[Weights, list[Ticket]] = {}
        self._landed = list[Landed]()
        self._faults = list[str]()
        self._batch_sizes = Counter[Hashable]()
        self._durations = Durations()
        self._workers = WorkerSet(
            cluster,
            role,
            num_workers=num_workers,
            min_workers=min_workers,
            limits=limits,
            exact=exact,
            on_lost=lambda worker: len(self._book.drop_worker(worker)),
            first_weights=self._first_weights,
            on_event=self._faults.append,
        )

    @property
    def counts(self) -> PoolCounts:
        return self._workers.counts

    def publish(self, weights: Weights, probe: Confirmation) -> None:
        """Let these weights be loaded from now on. probe: the report that a sampler with these weights must give."""
        self._workers.publish(weights, probe)
        for ticket in self._before_weights.pop(weights, ()):
            self._add(ticket)

    def published(self) -> list[Weights]:
        return list(self._workers.published)

    def withdraw(self, weights: Weights) -> None:
        """Let these weights no longer be loaded: no ticket needs them."""
        self._workers.published.pop(weights, None)

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Sample these tickets, as soon as their weights are published. A new ticket replaces one with the same key,
        whose answers are dropped."""
        self.forget(ticket.key for ticket in tickets if ticket.key in self._tickets)
        for ticket in tickets:
            self._tickets[ticket.key] = ticket
            if _weights(ticket) in self._workers.published:
                self._add(ticket)
            else:
                self._before_weights.setdefault(_weights(ticket), []).append(ticket)

    def take(self) -> list[Landed]:
        """Return the groups that have landed since the last call, in the order of arrival."""
        landed, self._landed = self._landed, []
        return landed

    def take_faults(self) -> list[str]:
        """Return a sentence about each fault since the last call."""
        faults = list(self._faults)
        self._faults.clear()
        return faults

    def forget(self, keys: Iterable[TicketKey]) -> None:
        """Forget tickets that are trained, or that are no longer wanted. Later answers to them are dropped."""
        keys = list(keys)
        self._book.forget(keys)
        for key in keys:
            if (ticket := self._tickets.pop(key, None)) is not None:
                self._batch_sizes[_batch(ticket)] -= 1

    def waiting(self) -> list[WaitingRow]:
        """List every ticket that has not landed: who waits for whom, since when."""
        now = self._cluster.now()
        rows = list[WaitingRow]()
        for key, workers in self._book.waiting().items():
            begun = [since for worker in workers if (since := self._workers.since(worker)) is not None]
            rows.append(WaitingRow(key, ", ".join(workers) or "no worker is free", now - min(begun, default=now)))
        for weights, tickets in self._before_weights.items():
            rows += [WaitingRow(ticket.key, f"weights {weights.version}, not published yet", 0.0) for ticket in tickets]
        return sorted(rows)

    def workers(self) -> list[WorkerRow]:
        """Return the current work of every worker, and its duration so far."""
        return self._workers.rows()

    def close(self) -> None:
        self._cluster.close()

    def events(self, timeout_s: float) -> list[Event]:
        """Wait for events, to `handle` them: for a caller that must not hold a lock while it waits."""
        return self._cluster.events(timeout_s)

    def do_due(self) -> float:
        """Do everything that does not need another event. Return the seconds until more will be due.

        Raise RolloutError if too few workers are left, as `handle` does.
        """
        self._workers.run_timers()
        self.counts.reopened += len(self._book.expire(self._cluster.now()))
        self._assign()
        now, times = self._cluster.now(), [self._workers.next_timer()]
        times += [deadline] if (deadline := self._book.next_deadline()) is not None else []
        oldest, age = self._book.oldest_single(), self._backup_age()
        if self._workers.idle and oldest is not None and age is not None and oldest[1] + age > now:
            times.append(oldest[1] + age)
        return max(0.0, min(times) - now)

    def handle(self, events: Iterable[Event]) -> None:
        """Handle events of the cluster, and give the workers that they have made idle something to do.

        Raise RolloutError if too few workers are left, or if two answers to one ticket differ with an exact engine.
        """
        for event in events:
            if (emitted := self._workers.handle(event)) is not None:
                slot, (key, rollouts) = emitted
                self._land(slot, key, rollouts)
        self._assign()

    def _first_weights(self) -> Weights | None:
        batch = self._book.next_batch()
        return None if batch is None else _weights_of(batch)

    def _add(self, ticket: Ticket) -> None:
        batch = _batch(ticket)
        self._batch_sizes[batch] += 1
        self._book.add(ticket.key, batch, (ticket.version, ticket.step, ticket.round, ticket.place))

    def _assign(self) -> None:
        """Give every idle worker something to do."""
        idle = self._workers.idle
        if not idle:
            return
        if not self._book.open_batches():
            self._back_up()
            return
        for weights in list(idle):
            own = [batch for batch in self._book.open_batches() if _weights_of(batch) == weights]
            while weights in idle and (batch := self._book.next_batch(own)) is not None:
                self._lease(next(iter(idle[weights].values())), batch)
        if idle and (batch := self._book.next_batch()) is not None:
            for slot in self._workers.all_idle():
                self._workers.push(slot, _weights_of(batch))

    def _lease(self, slot: Slot, batch: Hashable) -> None:
        """Lease a worker its share of a batch: as many tickets as each of all workers would get.

        Without this bound, the first worker that is free would take the tickets of all that are still busy.
        """
        weights, now, lease_s = _weights_of(batch), self._cluster.now(), self._lease_s()
        share = -(-self._batch_sizes[batch] // self._workers.num_left)
        keys = self._book.lease(slot.worker, batch, share, now=now, until=now + lease_s)
        self._workers.sample(slot, weights, [self._tickets[key] for key in keys], lease_s)

    def _back_up(self) -> None:
        """Give idle workers second leases of tickets that take longer than nearly all others."""
        age, now, lease_s = self._backup_age(), self._cluster.now(), self._lease_s()
        while age is not None and (oldest := self._book.oldest_single()) is not None and oldest[1] + age <= now:
            batch, _ = oldest
            weights = _weights_of(batch)
            if weights not in self._workers.idle:
                return
            slot = next(iter(self._workers.idle[weights].values()))
            begun_by = max(oldest[1], now - age)
            keys = self._book.lease_again(slot.worker, batch, begun_by=begun_by, until=now + lease_s)
            if not keys:
                return
            self.counts.backups += len(keys)
            self._workers.sample(slot, weights, [self._tickets[key] for key in keys], lease_s)

    def _lease_s(self) -> float:
        """Return the time to sample a group. Until durations are known, it is long enough for the longest responses:
        a worker that samples them would otherwise be given up again and again."""
        slow, limits = self._durations.quantile(0.99), self._workers.limits
        return max(limits.lease, limits.patience if slow is None else _LEASE_FACTOR * slow)

    def _backup_age(self) -> float | None:
        return self._durations.quantile(_BACKUP_AT)

    def _land(self, slot: Slot, key: TicketKey, rollouts: tuple[Rollout, ...]) -> None:
        ticket = self._tickets.get(key)
        if ticket is None:
            self.counts.late += 1
            return
        expected = self._workers.published.get(_weights(ticket))
        if expected is None or any(rollout.version_max != expected.policy_version for rollout in rollouts):
            self._workers.lied(slot, f"its answer to {_name(key)} is not from weights {ticket.version}")
            return
        now = self._cluster.now()
        seconds = now - (slot.call or slot.health).since
        landing = landed(ticket, rollouts, worker=slot.worker, seconds=seconds)
        outcome = self._book.land(key, slot.worker, landing.digest)
        if outcome is Landing.FIRST:
            self._durations.add(seconds)
            self._landed.append(landing)
        elif outcome is Landing.LATE:
            self.counts.late += 1
        else:
            self.counts.duplicates += 1
            if outcome is Landing.DIFFERENT:
                self._differs(ticket, slot.worker)

    def _differs(self, ticket: Ticket, worker: str) -> None:
        self.counts.redrawn_differs += 1
        if self._exact:
            raise RolloutError(
                f"two workers sampled {_name(ticket.key)} with the same weights and noise, and their rollouts "
                f"differ; the second was {worker}. A machine computes wrongly, or the workers do not have the same "
                "hardware and number of threads. Nothing of this step was trained."
            )


def _weights(ticket: Ticket) -> Weights:
    return Weights(ticket.version, ticket.weights)


def _batch(ticket: Ticket) -> Hashable:
    """Return the batch that a ticket belongs to: tickets of one round and one version of the weights can be sampled
    in one call."""
    return (_weights(ticket), ticket.kind, ticket.step, ticket.round)


def _weights_of(batch: Hashable) -> Weights:
    assert isinstance(batch, tuple)
    return batch[0]


def _name(key: TicketKey) -> str:
    return f"ticket {key.kind} {key.step}/{key.round}/{key.place}"
