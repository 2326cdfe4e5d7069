"""Sources that sample tickets. A source holds the weights that were published to it, and answers tickets.

`LiveTickets` samples with the trainer's own weights, as a run without lag does. `StoredTickets` samples in this process
too, with a policy of its own that loads the version that a ticket names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ansatz.errors import RolloutError
from ansatz.models.load import Policy
from ansatz.models.weights import LiveWeights, WeightSource, load_trained
from ansatz.rollout.base import Sampler
from ansatz.rollout.ticket import Landed, Ticket, landed, sample_tickets
from ansatz.rollout.weight_store import WeightStore
from ansatz.types import Rollout

OnFinished = Callable[[Rollout], None]


class TicketSource(Protocol):
    def publish(self, version: int, source: WeightSource) -> str:
        """Let tickets name this version from now on. Return the fingerprint for their `weights`."""
        ...

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Begin to sample these tickets, if the source can do so in the background."""
        ...

    def wait(self, tickets: Sequence[Ticket], on_finished: OnFinished) -> list[tuple[Rollout, ...]]:
        """Wait for the rollouts of each of these tickets of one round, as in `Landed`; all have been submitted.

        on_finished: called with each rollout once it is known, one at a time.
        """
        ...

    def metrics(self) -> Mapping[str, float]:
        """Return the counts of the workers so far, under the names of docs/metrics.md; nothing without workers."""
        ...

    def close(self) -> None:
        """Release the samplers. Does not close the weight store."""
        ...


class LiveTickets:
    """Samples with the weights that were published last. Every ticket must name them."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler, self._version = sampler, -1

    def publish(self, version: int, source: WeightSource) -> str:
        """Return an empty fingerprint: nothing can be mistaken for the trainer's own weights."""
        self._sampler.load_weights(source)
        self._version = version
        return ""

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Do nothing: nothing runs in the background."""

    def wait(self, tickets: Sequence[Ticket], on_finished: OnFinished) -> list[tuple[Rollout, ...]]:
        for ticket in tickets:
            if ticket.version != self._version:
                raise RolloutError(
                    f"ticket {tuple(ticket.key)} asks for version {ticket.version} of the weights, but the sampler "
                    f"shares the trainer's, which are version {self._version}."
                )
        return sample_tickets(self._sampler, tickets, on_finished=on_finished)

    def metrics(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None:
        self._sampler.close()


class StoredTickets:
    """Samples with `policy`, a copy of the trainer's. Stored weights are loaded into it. `sampler` samples from
    `policy`, or takes its weights from it. on_landed: called with everything that has been sampled."""

    def __init__(
        self, policy: Policy, sampler: Sampler, store: WeightStore, *, on_landed: Callable[[Landed], None]
    ) -> None:
        self._policy, self._sampler, self._store, self._on_landed = policy, sampler, store, on_landed
        self._loaded: tuple[int, str] | None = None

    def publish(self, version: int, source: WeightSource) -> str:
        return self._store.publish(version, source)

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Do nothing: nothing runs in the background."""

    def wait(self, tickets: Sequence[Ticket], on_finished: OnFinished) -> list[tuple[Rollout, ...]]:
        if tickets:
            self._load(tickets[0])
        start = time.perf_counter()
        groups = sample_tickets(self._sampler, tickets, on_finished=on_finished)
        seconds = time.perf_counter() - start
        for ticket, rollouts in zip(tickets, groups, strict=True):
            self._on_landed(landed(ticket, rollouts, seconds=seconds))
        return groups

    def metrics(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None:
        self._sampler.close()

    def _load(self, ticket: Ticket) -> None:
        if (ticket.version, ticket.weights) == self._loaded:  # equal weights of another version have their own number
            return
        stored = self._store.load(ticket.version)
        if stored.fingerprint != ticket.weights:
            raise RolloutError(
                f"ticket {tuple(ticket.key)} asks for weights {ticket.weights}, but version {ticket.version} in the "
                f"store has the fingerprint {stored.fingerprint}."
            )
        load_trained(self._policy, stored.tensors)
        self._sampler.load_weights(LiveWeights(policy=self._policy, version=stored.policy_version))
        self._loaded = ticket.version, ticket.weights
