"""A cluster without processes, on a virtual clock: scripted delays, deaths, stops and lies, in no time at all.

A `Script` says what a call does and how long it takes; `die`, `stop` and `resume` are
what kill, SIGSTOP and SIGCONT are to real workers.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansatz.cluster.base import Answered, Died, Event, Failed, Joined, Partial, Role
from ansatz.errors import ClusterLost


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one call does. Seconds count from its beginning.

    emits: (seconds, value) of each value that it emits, in order. seconds: when it returns `value`; None: it hangs.
    error: it raises this instead of returning; fatal as in `Failed`.
    """

    seconds: float | None = 0.0
    value: Any = None
    emits: Sequence[tuple[float, Any]] = ()
    error: str | None = None
    fatal: bool = False


Script = Callable[[str, str, tuple[Any, ...]], Plan]
"""(worker, method, arguments) -> plan of the call. It is called when the call begins."""


@dataclass(slots=True)
class _FakeWorker:
    alive: bool = True
    stopped: bool = False
    busy_until: float = 0.0
    held: list[Event] = field(default_factory=list[Event])


class FakeCluster:
    """start_s: seconds until a worker has joined. fails_to_start: called with the name of each worker that starts; if
    it returns a cause, the worker dies instead of joining.

    Every worker has a place, until `set_room` limits them. Workers without one wait, in the order of their start, until
    others have died or there is more room. Once `lost` is set to a sentence, the whole cluster is gone.
    """

    def __init__(
        self, script: Script, *, start_s: float = 1.0, fails_to_start: Callable[[str], str | None] | None = None
    ) -> None:
        self._script, self._start_s, self._fails_to_start = script, start_s, fails_to_start
        self._now, self._room = 0.0, math.inf
        self._unplaced = deque[str]()
        self._workers: dict[str, _FakeWorker] = {}
        self._heap: list[tuple[float, int, Event]] = []
        self._order, self._names, self._calls = itertools.count(), itertools.count(), itertools.count(1)
        self.closed, self.lost = False, ""

    @property
    def alive(self) -> list[str]:
        """The workers that have been started and are not dead, oldest first."""
        return [name for name, worker in self._workers.items() if worker.alive]

    def now(self) -> float:
        return self._now

    def start(self, role: Role, count: int) -> list[str]:
        self._check_lost()
        names = [f"{role.name}-{next(self._names)}" for _ in range(count)]
        for name in names:
            self._workers[name] = _FakeWorker()
            self._unplaced.append(name)
        self._place()
        return names

    def waits_for_room(self, worker: str) -> str:
        return f"{len(self.alive)} workers, and there is room for {self._room:g}" if worker in self._unplaced else ""

    def _check_lost(self) -> None:
        if self.lost:
            raise ClusterLost(self.lost)

    def call(self, worker: str, method: str, *args: Any) -> int:
        self._check_lost()
        number, target = next(self._calls), self._workers[worker]
        if not target.alive:
            return number
        begin = max(self._now, target.busy_until)
        plan = self._script(worker, method, args)
        for seconds, value in plan.emits:
            self._at(begin + seconds, Partial(worker, number, value))
        target.busy_until = float("inf") if plan.seconds is None else begin + plan.seconds
        if plan.seconds is not None:
            answer = Answered(worker, number, plan.value)
            self._at(
                target.busy_until, answer if plan.error is None else Failed(worker, number, plan.error, plan.fatal)
            )
        return number

    def kill(self, worker: str) -> None:
        self.die(worker, "killed")

    def die(self, worker: str, cause: str = "signal 9", *, after_s: float = 0.0) -> None:
        """Let the worker die after some seconds. What it would have reported later is lost."""
        if worker in self._workers and self._workers[worker].alive:
            self._at(self._now + after_s, Died(worker, cause))

    def stop(self, worker: str) -> None:
        """Hold back everything that the worker would report from now on, until `resume`."""
        self._workers[worker].stopped = True

    def resume(self, worker: str) -> None:
        target = self._workers[worker]
        target.stopped = False
        for event in target.held:
            self._at(self._now, event)
        target.held.clear()

    def events(self, timeout_s: float) -> list[Event]:
        """Return the events, as in the protocol. The clock jumps to the first event, or to the end of the timeout."""
        self._check_lost()
        until = self._now + timeout_s
        while self._heap and self._heap[0][0] <= until:
            self._now = max(self._now, self._heap[0][0])
            happened = list[Event]()
            while self._heap and self._heap[0][0] <= self._now:
                _, _, event = heapq.heappop(self._heap)
                happened += self._deliver(event)
            if happened:
                return happened
        self._now = until
        return []

    def close(self) -> None:
        for worker in self._workers.values():
            worker.alive = False
        self.closed = True

    def _at(self, time: float, event: Event) -> None:
        heapq.heappush(self._heap, (time, next(self._order), event))

    def _place(self) -> None:
        while self._unplaced and len(self.alive) - len(self._unplaced) < self._room:
            name = self._unplaced.popleft()
            self._workers[name].busy_until = self._now + self._start_s
            cause = self._fails_to_start(name) if self._fails_to_start else None
            self._at(self._now + self._start_s, Joined(name) if cause is None else Died(name, cause))

    def _deliver(self, event: Event) -> list[Event]:
        worker = self._workers[event.worker]
        if not worker.alive:
            return []
        if isinstance(event, Died):  # also if it is stopped: the system sees the end of a stopped process
            worker.alive = False
            worker.held.clear()
            if event.worker in self._unplaced:
                self._unplaced.remove(event.worker)
            self._place()
        elif worker.stopped:
            worker.held.append(event)
            return []
        return [event]
