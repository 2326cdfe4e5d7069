"""The protocol of clusters. A cluster starts workers, calls them and kills them, and reports events.

Nothing blocks: `start`, `call` and `kill` return at once, and everything that follows from them is an event. Deadlines
belong to the caller, which reads the cluster's clock. The same code therefore runs on real processes and, in
tests, on a virtual clock.

A worker hosts one object, its host. A call names a method of the host. The method receives the arguments of the call
and a function `emit`: each value that it emits is a `Partial` event, and its return value is the `Answered` event.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ansatz.errors import AnsatzError, RolloutError

Emit = Callable[[Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The resources that one worker takes. threads: CPU threads that its computations use."""

    threads: int = 1
    gpus: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A kind of worker, with the host that its workers build and the resources that each of them takes.

    target: "package.module:function". It is called in the worker's process with `settings`, which must be picklable,
    and returns the host. together: workers of one call of `start` are placed all at once or not at all, as trainer
    ranks must be, and on as few nodes as possible. Otherwise each is placed on its own.
    """

    name: str
    target: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    needs: Needs = Needs()
    together: bool = False

    def build(self) -> Any:
        """Build the host, in this process."""
        module, _, function = self.target.partition(":")
        return getattr(importlib.import_module(module), function)(**self.settings)


@dataclass(frozen=True, slots=True)
class Joined:
    """The worker's host is built, and the worker answers calls."""

    worker: str


@dataclass(frozen=True, slots=True)
class Died:
    """The worker is gone, and so are its calls. No later event names it."""

    worker: str
    cause: str


@dataclass(frozen=True, slots=True)
class Partial:
    """A value that a running call has emitted."""

    worker: str
    call: int
    value: Any


@dataclass(frozen=True, slots=True)
class Answered:
    """The call is done. value: the return value of the method."""

    worker: str
    call: int
    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The method raised, and the worker is alive. error: the kind of exception and its message.

    fatal: the error would come again on every worker, because it is one of the user's (`ansatz.errors`).
    """

    worker: str
    call: int
    error: str
    fatal: bool = False

    @classmethod
    def of(cls, worker: str, call: int, error: BaseException) -> Failed:
        fatal = isinstance(error, AnsatzError) and not isinstance(error, RolloutError)
        return cls(worker, call, f"{type(error).__name__}: {error}", fatal)


Event = Joined | Died | Partial | Answered | Failed


class Cluster(Protocol):
    """`start`, `call` and `events` raise ClusterLost once the system that runs the workers is gone. `kill` and `close`
    do not."""

    def now(self) -> float:
        """Return the seconds on the cluster's clock, which never goes backwards."""
        ...

    def start(self, role: Role, count: int) -> list[str]:
        """Begin to start workers, and return their names. `Joined` or `Died` follows for each.

        Names are never used again: a worker that replaces another has a name of its own. A worker that has no room now
        starts when there is room, perhaps on a node that joins later. Workers of a role that starts together do not
        wait: RolloutError, which shows the sum, if they have no room within a few seconds.
        """
        ...

    def waits_for_room(self, worker: str) -> str:
        """Return why the worker has no place on a node yet, with the sum. Empty once it has one."""
        ...

    def call(self, worker: str, method: str, *args: Any) -> int:
        """Begin a call, and return its number. A worker runs its calls one at a time, in the order of the calls."""
        ...

    def kill(self, worker: str) -> None:
        """Kill the worker with all processes that it has started, also if it is stopped or hangs. `Died` follows.

        A worker that is unknown or dead already is ignored.
        """
        ...

    def events(self, timeout_s: float) -> list[Event]:
        """Return the events since the last call, in order. Waits up to timeout_s for the first event."""
        ...

    def close(self) -> None:
        """Kill all workers, and release everything that the cluster itself started."""
        ...
