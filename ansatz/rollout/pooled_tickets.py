"""A `TicketSource` on a pool of workers, which sample in the background while this process trains.

A thread turns the pool. Weights reach the workers through the weight store. With each version the pool receives the
report of a sampler with the trainer's own weights about a probe, so that a worker with other weights is noticed.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence

from ansatz.cluster.base import Failed
from ansatz.cluster.health import Confirmation, Weights
from ansatz.models.threads import one_thread
from ansatz.models.weights import LiveWeights, WeightSource
from ansatz.rollout.host import probe
from ansatz.rollout.native import NativeSampler
from ansatz.rollout.pool import Pool
from ansatz.rollout.stall import StallWatch
from ansatz.rollout.ticket import Landed, OnFinished, Ticket, TicketKey
from ansatz.rollout.weight_store import WeightStore
from ansatz.types import Rollout

_TURN_S = 0.02
"""The thread looks at new tickets at least at this interval while it waits for events."""


class PooledTickets:
    """on_landed: called with everything that lands, from the thread of the pool. on_event: called with the current step
    and a sentence about each fault, from the thread that waits. stall_s: see `StallWatch`."""

    def __init__(
        self,
        pool: Pool,
        store: WeightStore,
        *,
        on_landed: Callable[[Landed], None],
        on_event: Callable[[int, str], None],
        stall_s: float,
    ) -> None:
        self._pool, self._store, self._on_landed, self._on_event = pool, store, on_landed, on_event
        self._landed: dict[TicketKey, Landed] = {}
        self._done: list[TicketKey] = []
        self._sampler: NativeSampler | None = None
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="pool", daemon=True)
        self._watch = StallWatch(stall_s, self._describe)
        self._thread.start()

    def publish(self, version: int, source: WeightSource) -> str:
        self.progress()
        fingerprint = self._store.publish(version, source)
        confirmation = self._probe(source)
        with self._changed:
            self._forget_done()
            self._pool.publish(Weights(version, fingerprint), confirmation)
        return fingerprint

    def submit(self, tickets: Sequence[Ticket]) -> None:
        for weights in {Weights(ticket.version, ticket.weights) for ticket in tickets} - set(self._pool.published()):
            if weights.version in self._store.versions():  # from before the run was resumed
                policy_version = self._store.load(weights.version).policy_version
                with self._changed:
                    self._pool.publish(weights, Confirmation(policy_version=policy_version, logps=()))
        with self._changed:
            self._pool.submit(tickets)

    def wait(self, tickets: Sequence[Ticket], on_finished: OnFinished) -> list[tuple[Rollout, ...]]:
        groups: dict[TicketKey, tuple[Rollout, ...]] = {}
        keys = {ticket.key for ticket in tickets}
        while len(groups) < len(keys):
            with self._changed:
                self._changed.wait_for(lambda: self._error is not None or any(key in self._landed for key in keys), 1.0)
                if self._error is not None:
                    raise self._error
                new = [self._landed.pop(key) for key in keys & self._landed.keys()]
                faults = self._pool.take_faults()
            for fault in faults:
                self._on_event(tickets[0].step, fault)
            for landing in sorted(new, key=lambda each: each.ticket.key):
                groups[landing.ticket.key] = landing.rollouts
                for rollout in landing.rollouts:
                    on_finished(rollout)
        with self._changed:
            self._done += keys
        return [groups[ticket.key] for ticket in tickets]

    def metrics(self) -> Mapping[str, float]:
        with self._changed:
            counts = dataclasses.asdict(self._pool.counts)
        return {f"perf/workers/{name}": float(count) for name, count in counts.items()}

    def progress(self) -> None:
        """Note that the run has not stalled: something has landed, or the trainer has done something."""
        self._watch.progress()

    def close(self) -> None:
        self._watch.close()
        self._closed = True
        self._thread.join(timeout=5.0)
        self._pool.close()

    def _describe(self) -> str:
        """Describe who waits for whom, since when. This takes no lock, because its holder may be what hangs."""
        tickets = [
            f"  {row.ticket.kind} of step {row.ticket.step} waits for {row.on}, {row.seconds:.0f} s"
            for row in self._pool.waiting()
        ]
        workers = [f"  {row.worker} is {row.state} ({row.doing}), {row.seconds:.0f} s" for row in self._pool.workers()]
        return "\n".join(["Tickets:", *(tickets or ["  none is open"]), "Workers:", *workers])

    def _run(self) -> None:
        try:
            while not self._closed:
                with self._changed:
                    wait_s = self._pool.do_due()
                events = self._pool.events(min(wait_s, _TURN_S))
                with self._changed:
                    if any(isinstance(event, Failed) for event in events):
                        self._forget_done()  # a worker may have been loading weights whose files are gone
                    self._pool.handle(events)
                    landed = self._pool.take()
                for landing in landed:
                    self._on_landed(landing)
                if landed:
                    self.progress()
                    with self._changed:
                        self._landed |= {landing.ticket.key: landing for landing in landed}
                        self._changed.notify_all()
        except BaseException as error:  # it is raised again in the thread that waits
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _forget_done(self) -> None:
        """Forget the tickets that nobody waits for any more, and withdraw the weights that the store has dropped."""
        self._pool.forget(self._done)
        self._done = []
        kept = self._store.versions()
        for weights in self._pool.published():
            if weights.version not in kept:
                self._pool.withdraw(weights)

    def _probe(self, source: WeightSource) -> Confirmation:
        """Return the report of a sampler with these weights; without log-probs if they are not a policy in this
        process."""
        if not isinstance(source, LiveWeights):
            return Confirmation(policy_version=source.version, logps=())
        if self._sampler is None or self._sampler.policy.model is not source.policy.model:
            self._sampler = NativeSampler(source.policy, max_concurrent=1)
        self._sampler.load_weights(source)
        with one_thread():
            return probe(self._sampler, source.policy)
