"""The workers of a pool: how they start, load weights, are probed, given up and replaced.

Tickets are left to `rollout.pool`. Nothing here waits: `run_timers` does the work that is due, and `handle` receives
the events of the cluster.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ansatz.cluster.base import Answered, Cluster, Died, Event, Failed, Joined, Partial, Role
from ansatz.cluster.health import Confirmation, Health, RestartBudget, State, Weights, contradiction
from ansatz.errors import RolloutError

_ROOM_INTERVAL_S = 1.0
"""Seconds between looks at a worker that waits for room on the cluster."""
_ROOM_NOTICE_S = 5.0
"""A worker that has waited for this long is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds. They nest: probe < lease, and start covers the loading of weights (`config.schema.ClusterSection`).

    probe: to answer a probe. lease: to sample a group, at least; the limit is four times the 99th percentile of the
    durations if that is longer, and patience until they are known. start: until a worker has joined, and until it has
    loaded weights. idle: a worker that has been idle for this long is probed. restarts: of one worker within an hour
    (`cluster.health`). patience: how long there may be room on the cluster for fewer than the least number of workers.
    """

    probe: float = 10.0
    lease: float = 60.0
    start: float = 300.0
    idle: float = 30.0
    restarts: int = 5
    patience: float = 500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The current call of a worker. weights: the weights that it uses or loads."""

    number: int
    method: str
    since: float
    weights: Weights


@dataclass(slots=True)
class Slot:
    """A place for one worker. A worker that dies is replaced by another; the budget stays.

    expected: the report that the engine must give until the next push. before: the last push, and the report on it.
    no_room: the reason why no node has a place for the worker; empty if one has.
    """

    index: int
    worker: str
    health: Health
    budget: RestartBudget
    heard: float
    call: Call | None = None
    expected: Confirmation | None = None
    before: tuple[Confirmation, Confirmation] | None = None
    no_room: str = ""


@dataclass(slots=True)
class PoolCounts:
    """Counts of the events of the workers and their answers so far."""

    deaths: int = 0
    restarts: int = 0
    lies: int = 0
    reopened: int = 0
    backups: int = 0
    late: int = 0
    duplicates: int = 0
    redrawn_differs: int = 0


class WorkerRow(NamedTuple):
    """One line of the report on a stall."""

    worker: str
    state: State
    seconds: float
    doing: str


class WorkerSet:
    """num_workers: number of workers to start. min_workers: RolloutError when fewer are left whose budget of restarts
    is not spent. exact: the engine gives the same bits wherever it runs.

    on_lost: called with a worker that is gone; returns the number of tickets that are open again because of that.
    first_weights: the weights that a worker that has just joined should load; None: not yet known.
    on_event: called with a sentence about each fault.
    """

    def __init__(
        self,
        cluster: Cluster,
        role: Role,
        *,
        num_workers: int,
        min_workers: int,
        limits: Limits,
        exact: bool,
        on_lost: Callable[[str], int],
        first_weights: Callable[[], Weights | None],
        on_event: Callable[[str], None],
    ) -> None:
        self._cluster, self._role, self.limits, self._exact = cluster, role, limits, exact
        self._num_workers, self._min_workers = num_workers, min_workers
        self._on_lost, self._first_weights, self._on_event = on_lost, first_weights, on_event
        self.counts = PoolCounts()
        self.published: dict[Weights, Confirmation] = {}
        self.idle: dict[Weights, dict[int, Slot]] = {}
        """Workers that are ready and idle, by weights, then by index."""
        self._short_since: float | None = None
        self._without_weights = list[Slot]()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        now = cluster.now()
        self._slots = [
            Slot(index, worker, Health(now), RestartBudget(restarts=limits.restarts), heard=now)
            for index, worker in enumerate(cluster.start(role, num_workers))
        ]
        self._slot_of = {slot.worker: slot for slot in self._slots}
        for slot in self._slots:
            self._expect_start(slot)
        self._at(now + limits.idle, self._probe_idle)

    def publish(self, weights: Weights, probe: Confirmation) -> None:
        self.published[weights] = probe
        while self._without_weights:
            self.push(self._without_weights.pop(), weights)

    @property
    def num_left(self) -> int:
        """Workers whose budget of restarts is not spent."""
        return sum(slot.health.state is not State.RETIRED for slot in self._slots)

    def all_idle(self) -> list[Slot]:
        return [slot for slots in self.idle.values() for slot in slots.values()]

    def sample(self, slot: Slot, weights: Weights, tickets: Iterable[Any], lease_s: float) -> None:
        self._begin(slot, "sample", weights, lease_s, list(tickets))

    def push(self, slot: Slot, weights: Weights) -> None:
        self._set_busy(slot)
        slot.health.pushing(self._cluster.now())
        self._begin(slot, "push", weights, self.limits.start, *weights)

    def give_up(self, slot: Slot, reason: str) -> None:
        """Kill a worker. Its later reports are ignored."""
        worker = slot.worker
        self._lose(slot, reason)
        self._cluster.kill(worker)

    def lied(self, slot: Slot, reason: str) -> None:
        self.counts.lies += 1
        self.give_up(slot, reason)

    def rows(self) -> list[WorkerRow]:
        """Return the current work of every worker, and its duration so far."""
        now = self._cluster.now()
        return [
            WorkerRow(slot.worker, slot.health.state, now - (slot.call or slot.health).since, _doing(slot))
            for slot in self._slots
        ]

    def since(self, worker: str) -> float | None:
        """Return the time at the beginning of a worker's current call; None if it has none."""
        slot = self._slot_of.get(worker)
        return None if slot is None or slot.call is None else slot.call.since

    def run_timers(self) -> None:
        now = self._cluster.now()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def next_timer(self) -> float:
        return self._timers[0][0]  # the probe of idle workers is always due some time

    def handle(self, event: Event) -> tuple[Slot, Any] | None:
        """Handle an event of the cluster. Return a worker and the value that it has emitted, if that is the event."""
        slot = self._slot_of.get(event.worker)
        if slot is None:  # of a worker that was given up
            return None
        slot.heard = self._cluster.now()
        if isinstance(event, Partial):
            return slot, event.value
        if isinstance(event, Died):
            self._lose(slot, event.cause)
        elif isinstance(event, Joined):
            slot.no_room = ""
            self._load(slot)
        elif slot.call is not None and event.call == slot.call.number:
            self._end_call(slot, slot.call, event)
        return None

    def _load(self, slot: Slot) -> None:
        """Let a worker load the weights that open tickets need first, or the newest, or the next to be published."""
        weights = self._first_weights()
        if weights not in self.published:
            weights = max(self.published, default=None)
        if weights is None:
            slot.call = None
            self._without_weights.append(slot)
        else:
            self.push(slot, weights)

    def _end_call(self, slot: Slot, call: Call, event: Answered | Failed) -> None:
        if isinstance(event, Failed):
            if event.fatal:
                raise RolloutError(f"{slot.worker} cannot {call.method}: {event.error}")
            if call.method == "push" and call.weights not in self.published:
                self._load(slot)  # no ticket needs the weights any more, so their files are gone
            else:
                self.give_up(slot, f"{call.method} failed: {event.error}")
        elif call.method == "sample":
            slot.call = None
            self._set_idle(slot)
        else:
            self._confirm(slot, call, event.value)

    def _confirm(self, slot: Slot, call: Call, reported: Confirmation) -> None:
        """Learn the engine's weights from the answer to a push or a probe."""
        is_push = call.method == "push"
        expected = self.published.get(call.weights) if is_push else slot.expected
        if expected is None:
            self._load(slot)  # the weights were withdrawn while it loaded them
            return
        if lie := contradiction(expected, reported, exact=self._exact, previous=slot.before if is_push else None):
            self.lied(slot, lie)
            return
        now, slot.call = self._cluster.now(), None
        if is_push:
            slot.expected, slot.before = expected, (expected, reported)
            slot.health.confirmed(call.weights, now)
        elif slot.health.state is State.SUSPECT:
            slot.health.cleared(now)
        self._set_idle(slot)

    def _begin(self, slot: Slot, method: str, weights: Weights, limit_s: float, *args: Any) -> None:
        """Begin a call, which must end within limit_s (`_overdue`)."""
        self._set_busy(slot)
        now = self._cluster.now()
        number = self._cluster.call(slot.worker, method, *args)
        slot.call = Call(number=number, method=method, since=now, weights=weights)
        self._at(now + limit_s, lambda: self._overdue(slot, number, limit_s))

    def _probe(self, slot: Slot) -> None:
        assert slot.health.weights is not None
        self._begin(slot, "probe", slot.health.weights, self.limits.probe)

    def _probe_idle(self) -> None:
        """Probe idle workers. Without this, a process that is stopped while it is idle would be noticed only when
        there is work."""
        now = self._cluster.now()
        for slot in self.all_idle():
            if now - slot.heard >= self.limits.idle:
                self._probe(slot)
        self._at(now + self.limits.idle, self._probe_idle)

    def _overdue(self, slot: Slot, number: int, limit_s: float) -> None:
        """Give up a worker whose call has not ended in time. One that samples is probed first, even if others have
        answered its tickets meanwhile. It answers the probe after the call, so it is cleared if it is only slow."""
        if slot.call is None or slot.call.number != number:
            return
        if slot.call.method != "sample":
            cause = f"{slot.health.reason}, and " if slot.health.reason else ""
            self.give_up(slot, f"{cause}no answer to a {slot.call.method} within {limit_s:g} s")
            return
        slot.health.suspect(f"its groups were not sampled within {limit_s:.1f} s", self._cluster.now())
        self._on_event(f"{slot.worker} is suspect: {slot.health.reason}.")
        self._probe(slot)

    def _lose(self, slot: Slot, reason: str) -> None:
        now = self._cluster.now()
        del self._slot_of[slot.worker]
        self._set_busy(slot)
        if slot in self._without_weights:
            self._without_weights.remove(slot)
        slot.call = slot.expected = slot.before = None
        slot.no_room = ""
        reopened = self._on_lost(slot.worker)
        slot.health.died(reason, now)
        self.counts.deaths += 1
        self.counts.reopened += reopened
        delay = slot.budget.delay_after_death(now)
        text = f"{slot.worker} is dead ({reason}); {reopened} groups are open again."
        if delay is None:
            slot.health.retired(now)
            self._on_event(f"{text} Its budget of {slot.budget.restarts} restarts is spent.")
            self._check_enough()
        else:
            self._on_event(f"{text} It is restarted in {delay:g} s.")
            self._at(now + delay, lambda: self._restart(slot))

    def _check_enough(self) -> None:
        retired = [slot for slot in self._slots if slot.health.state is State.RETIRED]
        if (left := self.num_left) < self._min_workers:
            reasons = "; ".join(f"{slot.worker}: {slot.health.reason}" for slot in retired)
            raise RolloutError(
                f"{left} of {self._num_workers} rollout workers are left, and cluster.min_workers is "
                f"{self._min_workers}. The others died too often ({reasons}). Remove the cause, or raise "
                "cluster.lease if they were only slow; then resume the run."
            )

    def _restart(self, slot: Slot) -> None:
        slot.health.restarted(self._cluster.now())
        (slot.worker,) = self._cluster.start(self._role, 1)
        self._slot_of[slot.worker] = slot
        self.counts.restarts += 1
        self._expect_start(slot)

    def _expect_start(self, slot: Slot) -> None:
        """Begin the time to start when the worker gets its place on a node. Until then, look again every second."""
        worker, waited = slot.worker, slot.no_room

        def is_starting() -> bool:
            waits_for_weights = slot in self._without_weights
            return slot.worker == worker and slot.health.state is State.STARTING and not waits_for_weights

        def look_again() -> None:
            if is_starting():
                self._expect_start(slot)
                self._check_room(slot)

        def overdue() -> None:
            if is_starting():
                self.give_up(slot, f"it did not start within {self.limits.start:g} s")

        slot.no_room = self._cluster.waits_for_room(worker)
        if slot.no_room:
            self._at(self._cluster.now() + _ROOM_INTERVAL_S, look_again)
            return
        if waited and self._waits_long(slot):
            self._on_event(f"{worker} has room again.")
        self._at(self._cluster.now() + self.limits.start, overdue)

    def _check_room(self, slot: Slot) -> None:
        """Report a worker that waits for room. Raise RolloutError after the patience, if too few others have room."""
        now = self._cluster.now()
        if slot.no_room and self._waits_long(slot) and now - slot.health.since < _ROOM_NOTICE_S + _ROOM_INTERVAL_S:
            self._on_event(f"{slot.worker} waits for room: {slot.no_room}.")
        left = self.num_left - sum(bool(each.no_room) for each in self._slots)
        if left >= self._min_workers:
            self._short_since = None
            return
        self._short_since = now if self._short_since is None else self._short_since
        if now - self._short_since >= self.limits.patience:
            raise RolloutError(
                f"for {self.limits.patience:g} s, only {left} of {self._num_workers} rollout workers have had room on "
                f"the cluster, and at least {self._min_workers} must have it: {slot.no_room}. Join nodes, or ask for "
                "less in the section cluster of the recipe; then continue with --resume."
            )

    def _waits_long(self, slot: Slot) -> bool:
        return self._cluster.now() - slot.health.since >= _ROOM_NOTICE_S

    def _set_idle(self, slot: Slot) -> None:
        assert slot.health.weights is not None
        self.idle.setdefault(slot.health.weights, {})[slot.index] = slot

    def _set_busy(self, slot: Slot) -> None:
        slots = self.idle.get(slot.health.weights) if slot.health.weights is not None else None
        if slots is not None and slots.pop(slot.index, None) is not None and not slots:
            del self.idle[slot.health.weights]  # pyright: ignore[reportArgumentType]

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time, next(self._order), action))


def _doing(slot: Slot) -> str:
    if slot.call is not None:
        return f"{slot.call.method} with weights {slot.call.weights.version}"
    return slot.no_room or slot.health.reason or "idle"
