"""A cluster in this process, for one worker: no thread, no other process, and nothing that can hang on its own."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from ansatz.cluster.base import Answered, Died, Event, Failed, Joined, Partial, Role
from ansatz.errors import RolloutError


class InlineCluster:
    """Calls run inside `events`, one call at a time, and the events of a call come together when it has ended."""

    def __init__(self) -> None:
        self._hosts: dict[str, Any] = {}
        self._events = deque[Event]()
        self._calls = deque[tuple[str, int, str, tuple[Any, ...]]]()
        self._num_started = self._num_calls = 0

    def now(self) -> float:
        return time.monotonic()

    def start(self, role: Role, count: int) -> list[str]:
        if count + len(self._hosts) > 1:
            raise RolloutError(f"{count} workers in one process: only one is possible. Use the cluster of `ray`.")
        worker = f"{role.name}-{self._num_started}"
        self._num_started += 1
        self._hosts[worker] = role.build()
        self._events.append(Joined(worker))
        return [worker]

    def waits_for_room(self, worker: str) -> str:
        return ""

    def call(self, worker: str, method: str, *args: Any) -> int:
        self._num_calls += 1
        self._calls.append((worker, self._num_calls, method, args))
        return self._num_calls

    def kill(self, worker: str) -> None:
        if self._hosts.pop(worker, None) is not None:
            self._events.append(Died(worker, "killed"))

    def events(self, timeout_s: float) -> list[Event]:
        del timeout_s  # nothing happens while nobody calls
        if not self._events and self._calls:
            self._run(*self._calls.popleft())
        events = list(self._events)
        self._events.clear()
        return events

    def close(self) -> None:
        self._hosts.clear()
        self._calls.clear()

    def _run(self, worker: str, call: int, method: str, args: tuple[Any, ...]) -> None:
        if worker not in self._hosts:
            return
        emitted = list[Event]()
        try:
            value = getattr(self._hosts[worker], method)(
                *args, lambda item: emitted.append(Partial(worker, call, item))
            )
        except BaseException as error:  # a worker in another process reports every exception in this way too
            self._events += [*emitted, Failed.of(worker, call, error)]
        else:
            self._events += [*emitted, Answered(worker, call, value)]
