"""The leases of tickets by workers, their deadlines, and the fate of answers. Pure bookkeeping: time is an argument.

    OPEN -> LEASED(worker, until) -> LANDED -> forgotten, once the step is trained

A leased ticket is open again when its worker dies or its deadline passes. A ticket that takes long can get a second
lease (backup). Only answers under a running lease count, and the first of them wins. Both are equal, so this changes no
result. No ticket is ever lost or skipped.

Tickets of one batch can be sampled in one call of an engine.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Generic, TypeVar

TicketT = TypeVar("TicketT", bound=Hashable)
Batch = Hashable


class Landing(Enum):
    """The kind of an answer: the first one, one that equals the first, one that differs from it, or a late one."""

    FIRST = auto()
    EQUAL = auto()
    DIFFERENT = auto()
    LATE = auto()  # the lease has ended, or the ticket has been forgotten; the answer is dropped


@dataclass(slots=True)
class _Entry:
    batch: Batch
    order: tuple[Any, ...]
    until_of: dict[str, float] = field(default_factory=dict[str, float])  # by worker
    digest: str | None = None


class LeaseBook(Generic[TicketT]):
    """The tickets of a run that are not trained yet.

    Example: after `book.add(7, "batch", (0,))`, `book.lease("worker", "batch", 1, now=0.0, until=9.0)` is [7].
    """

    def __init__(self) -> None:
        self._entries: dict[TicketT, _Entry] = {}
        self._open: dict[Batch, list[tuple[tuple[Any, ...], int, TicketT]]] = {}  # heaps by order
        self._num_open: dict[Batch, int] = {}
        self._single: dict[TicketT, float] = {}  # tickets with one lease -> its beginning, oldest first
        self._deadlines: list[tuple[float, int, TicketT, str]] = []
        self._of_worker: dict[str, dict[TicketT, float]] = {}
        self._count = itertools.count()

    def add(self, ticket: TicketT, batch: Batch, order: tuple[Any, ...]) -> None:
        """Add a new ticket, open. Within a batch and among batches, smaller orders are leased first."""
        if ticket in self._entries:
            raise ValueError(f"{ticket} was added before.")
        self._entries[ticket] = _Entry(batch, order)
        self._reopen(ticket)

    def next_batch(self, allowed: Iterable[Batch] | None = None) -> Batch | None:
        """Return the batch with the open ticket of the smallest order, among `allowed` or all; None if nothing is
        open."""
        batches = self._open if allowed is None else allowed
        heads = [(head, batch) for batch in batches if (head := self._head(batch)) is not None]
        return min(heads, key=lambda pair: pair[0])[1] if heads else None

    def open_batches(self) -> list[Batch]:
        return list(self._num_open)

    def lease(self, worker: str, batch: Batch, count: int, *, now: float, until: float) -> list[TicketT]:
        """Lease up to `count` open tickets of a batch to a worker."""
        leased = list[TicketT]()
        while len(leased) < count and self._head(batch) is not None:
            _, _, ticket = heapq.heappop(self._open[batch])
            self._closed(batch)
            self._grant(ticket, worker, until)
            self._single[ticket] = now
            leased.append(ticket)
        return leased

    def lease_again(self, worker: str, batch: Batch, *, begun_by: float, until: float) -> list[TicketT]:
        """Give second leases of the tickets whose only lease began at `begun_by` or earlier, the oldest first."""
        taken = list[TicketT]()
        for ticket, since in self._single.items():
            if since > begun_by:
                break
            entry = self._entries[ticket]
            if entry.batch == batch and worker not in entry.until_of:
                taken.append(ticket)
        for ticket in taken:
            del self._single[ticket]
            self._grant(ticket, worker, until)
        return taken

    def oldest_single(self) -> tuple[Batch, float] | None:
        """Return batch and beginning of the oldest lease that is the only one of its ticket."""
        for ticket, since in self._single.items():
            return self._entries[ticket].batch, since
        return None

    def land(self, ticket: TicketT, worker: str, digest: str) -> Landing:
        """Record that an answer has come. digest: of everything in it that must be equal whoever samples the ticket."""
        entry = self._entries.get(ticket)
        if entry is None:
            return Landing.LATE
        if entry.digest is not None:
            self._end(ticket, worker)
            return Landing.EQUAL if entry.digest == digest else Landing.DIFFERENT
        if worker not in entry.until_of:
            return Landing.LATE
        self._end(ticket, worker)
        self._single.pop(ticket, None)
        entry.digest = digest
        return Landing.FIRST

    def drop_worker(self, worker: str) -> list[TicketT]:
        """End all leases of a worker, and return the tickets that are open again because of that."""
        return [ticket for ticket in list(self._of_worker.get(worker, ())) if self._give_up(ticket, worker)]

    def expire(self, now: float) -> list[TicketT]:
        """End the leases whose deadline has passed. Return their tickets."""
        expired = list[TicketT]()
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            _, _, ticket, worker = heapq.heappop(self._deadlines)
            self._give_up(ticket, worker)
            expired.append(ticket)
        return expired

    def next_deadline(self) -> float | None:
        """Return the next deadline of a running lease. Remove those of leases that have ended on the way."""
        while self._deadlines:
            until, _, ticket, worker = self._deadlines[0]
            if self._of_worker.get(worker, {}).get(ticket) == until:
                return until
            heapq.heappop(self._deadlines)
        return None

    def forget(self, tickets: Iterable[TicketT]) -> None:
        """Forget tickets that are trained or no longer wanted. Later answers to them are late."""
        for ticket in tickets:
            entry = self._entries.pop(ticket, None)
            if entry is None:
                continue
            is_open = entry.digest is None and not entry.until_of
            for worker in list(entry.until_of):
                self._of_worker[worker].pop(ticket, None)
            self._single.pop(ticket, None)
            if is_open:
                self._closed(entry.batch)

    def waiting(self) -> dict[TicketT, tuple[str, ...]]:
        """List every ticket without an answer, with the workers that hold a lease of it."""
        return {ticket: tuple(entry.until_of) for ticket, entry in self._entries.items() if entry.digest is None}

    def _grant(self, ticket: TicketT, worker: str, until: float) -> None:
        self._entries[ticket].until_of[worker] = until
        self._of_worker.setdefault(worker, {})[ticket] = until
        heapq.heappush(self._deadlines, (until, next(self._count), ticket, worker))

    def _end(self, ticket: TicketT, worker: str) -> None:
        self._entries[ticket].until_of.pop(worker, None)
        self._of_worker.get(worker, {}).pop(ticket, None)

    def _give_up(self, ticket: TicketT, worker: str) -> bool:
        """End a lease without an answer. Tell whether the ticket is open again."""
        entry = self._entries[ticket]
        self._end(ticket, worker)
        if entry.digest is not None or entry.until_of:
            return False
        self._single.pop(ticket, None)
        self._reopen(ticket)
        return True

    def _reopen(self, ticket: TicketT) -> None:
        entry = self._entries[ticket]
        heapq.heappush(self._open.setdefault(entry.batch, []), (entry.order, next(self._count), ticket))
        self._num_open[entry.batch] = self._num_open.get(entry.batch, 0) + 1

    def _closed(self, batch: Batch) -> None:
        self._num_open[batch] -= 1
        if not self._num_open[batch]:
            del self._num_open[batch], self._open[batch]

    def _head(self, batch: Batch) -> tuple[Any, ...] | None:
        """Return the order of the first open ticket of a batch. Remove forgotten tickets on the way."""
        heap = self._open.get(batch, [])
        while heap:
            order, _, ticket = heap[0]
            entry = self._entries.get(ticket)
            if entry is not None and entry.digest is None and not entry.until_of and entry.order == order:
                return order
            heapq.heappop(heap)
        return None


class Durations:
    """The durations of answers, for deadlines and second leases. It keeps the last `memory` durations."""

    def __init__(self, *, memory: int = 1000, enough: int = 20) -> None:
        self._memory, self._enough = memory, enough
        self._recent = deque[float]()
        self._sorted = list[float]()

    def add(self, seconds: float) -> None:
        if len(self._recent) == self._memory:
            self._sorted.pop(bisect.bisect_left(self._sorted, self._recent.popleft()))
        self._recent.append(seconds)
        bisect.insort(self._sorted, seconds)

    def quantile(self, fraction: float) -> float | None:
        """Return a quantile of the durations; None until there are enough to judge by."""
        if len(self._sorted) < self._enough:
            return None
        return self._sorted[min(len(self._sorted) - 1, int(fraction * len(self._sorted)))]
