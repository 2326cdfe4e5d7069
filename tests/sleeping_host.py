"""A host without a model for tests of the pool on real processes: its answers depend on the ticket, and take time."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from pool_workers import probe, rollouts_of

from ansatz.cluster.base import Emit
from ansatz.cluster.health import Confirmation
from ansatz.rollout.ticket import Ticket


def seconds_of(ticket: Ticket, shortest: float, longest: float) -> float:
    return random.Random(f"{ticket.step}/{ticket.place}").uniform(shortest, longest)


class Host:
    """shortest, longest: seconds for a ticket. log: a folder in which each process notes the versions that it samples.

    liar: whether the first worker that asks for it acknowledges a push and keeps the weights that it had.
    """

    def __init__(self, shortest: float, longest: float, log: str, liar: bool = False) -> None:
        self._seconds, self._log, self._version = (shortest, longest), Path(log), -1
        self._lies = liar and _claim(self._log / "liar")

    def push(self, version: int, fingerprint: str, emit: Emit) -> Confirmation:
        if not self._lies or self._version < 0:
            self._version = version
        return Confirmation(policy_version=probe(version).policy_version, logps=probe(self._version).logps)

    def probe(self, emit: Emit) -> Confirmation:
        return probe(self._version)

    def sample(self, tickets: Sequence[Ticket], emit: Emit) -> int:
        for ticket in tickets:
            with (self._log / f"{os.getpid()}{'-liar' if self._lies else ''}").open("a") as file:
                file.write(f"{ticket.version}\n")
            time.sleep(seconds_of(ticket, *self._seconds))
            emit((ticket.key, rollouts_of(ticket)))
        return len(tickets)


def _claim(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
