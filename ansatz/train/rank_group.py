"""The ranks of a trainer as workers of a cluster: they start together, are called together, and end together.

A rank alone is of no use: as soon as one dies, raises or does not answer, all of them are killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ansatz.cluster.base import Answered, Cluster, Died, Failed, Joined, Role
from ansatz.errors import ClusterLost, RolloutError, TrainerError
from ansatz.train.rank_host import RankAnswer, Status

_GRACE_S = 2.0
"""Time to wait for the cause after the first sign of a loss. The other ranks notice a death first as a lost
connection."""
_RETRY_S = 5.0
"""Seconds between attempts to place ranks while nodes are missing."""


class RanksLost(Exception):
    """All ranks are dead or are being killed. The message is a sentence about the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLimits:
    """Limits in seconds. start: until all ranks have joined. call: for one call, such as the update of a step.
    patience: how long a restart waits for room, if nodes have left."""

    start: float = 300.0
    call: float = 500.0
    patience: float = 500.0


class RankGroup:
    """Ranks that act as one. size: number of ranks. min_size: the smallest number to start with if there is less room.

    role: its host provides the methods of `RankHost`. on_answer: called whenever all ranks have answered alike. The
    caller closes the cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        role: Role,
        *,
        size: int,
        min_size: int,
        limits: RankLimits,
        on_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster, self._role, self._limits, self._on_answer = cluster, role, limits, on_answer
        self._size, self._min_size = size, min_size
        self.workers: list[str] = []
        self.status: Status | None = None
        self.peak_gb = 0.0

    @property
    def running(self) -> bool:
        return bool(self.workers)

    def start(self) -> None:
        """Start `size` ranks, or fewer if there is not enough room. Raise TrainerError if even min_size do not fit.

        A restart waits for room. Raise RanksLost if a rank does not start.
        """
        self.workers = self._place(patience_s=0.0 if self.status is None else self._limits.patience)
        self._gather(dict.fromkeys(self.workers, Joined), self._limits.start, doing="start")
        machines = self._call_workers(self.workers, "machine", [()] * len(self.workers))
        is_one_machine = all(machine == machines[0] for machine in machines)
        (address,) = self._call_workers(self.workers[:1], "open_store", [(is_one_machine,)])
        arguments = [(rank, len(self.workers), address) for rank in range(len(self.workers))]
        self._agreed(self._call_workers(self.workers, "join", arguments, limit_s=self._limits.start))

    def call(self, method: str, *args: Any) -> RankAnswer:
        """Call every rank. Return the first rank's answer, once all answers agree.

        Raise the error that all ranks have raised: an AnsatzError or an OSError. Raise RanksLost if a rank dies, fails
        or is too slow.
        """
        return self._agreed(self._call_workers(self.workers, method, [args] * len(self.workers)))

    def kill(self) -> None:
        for worker in self.workers:
            self._cluster.kill(worker)
        self.workers = []

    def close(self) -> None:
        """End healthy ranks in order: a rank that the driver's process hosts leaves the process group."""
        try:
            if self.running:
                self._call_workers(self.workers, "leave", [()] * len(self.workers), limit_s=_GRACE_S)
        except (RanksLost, ClusterLost):
            pass
        self.kill()

    def now(self) -> float:
        """Return the seconds on the clock of the cluster."""
        return self._cluster.now()

    def pause(self, seconds: float) -> None:
        """Wait before a restart."""
        until = self._cluster.now() + seconds
        while (left := until - self._cluster.now()) > 0:
            self._cluster.events(left)

    def _place(self, *, patience_s: float) -> list[str]:
        until = self._cluster.now() + patience_s
        while True:
            for size in range(self._size, self._min_size - 1, -1):
                try:
                    return self._cluster.start(self._role, size)
                except ClusterLost:
                    raise
                except RolloutError as error:
                    if size == self._min_size and self._cluster.now() >= until:
                        raise TrainerError(f"at least {size} trainer ranks are needed: {error}") from error
            self.pause(_RETRY_S)

    def _call_workers(
        self, workers: Sequence[str], method: str, args: Sequence[tuple[Any, ...]], *, limit_s: float | None = None
    ) -> list[Any]:
        numbers = [self._cluster.call(worker, method, *each) for worker, each in zip(workers, args, strict=True)]
        expected = dict(zip(workers, numbers, strict=True))
        answers = self._gather(expected, limit_s or self._limits.call, doing=method)
        return [answers[worker] for worker in workers]

    def _gather(self, expected: dict[str, Any], limit_s: float, *, doing: str) -> dict[str, Any]:
        """Wait for each worker's answer to its numbered call, or until the worker has joined."""
        answers, causes = dict[str, Any](), dict[str, str]()
        deadline = self._cluster.now() + limit_s
        while len(answers) < len(expected) and (left := deadline - self._cluster.now()) > 0:
            for event in self._cluster.events(left):
                if isinstance(event, Died | Failed) and event.worker in self.workers:
                    deadline = min(deadline, self._cluster.now() + _GRACE_S)
                    self._note(causes, event)
                elif isinstance(event, Joined) and expected.get(event.worker) is Joined:
                    answers[event.worker] = None
                elif isinstance(event, Answered) and event.call == expected.get(event.worker):
                    answers[event.worker] = event.value
                    if isinstance(event.value, RankAnswer) and event.value.error is not None:
                        deadline = min(deadline, self._cluster.now() + max(_GRACE_S, limit_s / 10))
        errors = [answer.error for answer in answers.values() if isinstance(answer, RankAnswer) and answer.error]
        if len(answers) == len(expected):
            return answers
        if errors and not causes:  # one rank cannot go on, and the others wait for it
            self.kill()
            raise errors[0]
        missing = ", ".join(self._name(worker) for worker in expected if worker not in answers)
        raise RanksLost("; ".join(causes.values()) or f"{missing} did not {doing} within {limit_s:g} s")

    def _note(self, causes: dict[str, str], event: Died | Failed) -> None:
        """Note the cause of a loss. A death explains more than its effects on the other ranks."""
        name = self._name(event.worker)
        if isinstance(event, Died):
            for worker in [worker for worker in causes if not causes[worker].startswith(f"{self._name(worker)} died")]:
                del causes[worker]
            causes[event.worker] = f"{name} died ({event.cause})"
        elif not causes:
            causes[event.worker] = f"{name} failed ({event.error})"

    def _name(self, worker: str) -> str:
        return f"rank {self.workers.index(worker)}" if worker in self.workers else worker

    def _agreed(self, answers: Sequence[RankAnswer]) -> RankAnswer:
        """Return the answer of the first rank. Raise TrainerError if the ranks disagree."""
        first = answers[0]
        for rank, answer in enumerate(answers):
            if _comparable(answer) != _comparable(first):
                self.kill()
                raise TrainerError(
                    f"ranks 0 and {rank} of the trainer disagree: {_comparable(first):.300} and "
                    f"{_comparable(answer):.300}. One of the machines computes wrongly, or they run different versions "
                    "of Ansatz. Resume from the last checkpoint on other machines."
                )
        self.status, self.peak_gb = first.status, max(answer.peak_gb for answer in answers)
        self._on_answer()
        if first.error is not None:
            raise first.error
        return first


def _comparable(answer: RankAnswer) -> str:
    """Return the answer as text, so that nan equals nan."""
    return f"{answer.status} {answer.agreed} {answer.error!r}"
