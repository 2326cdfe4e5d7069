"""The rollout queue: issues the tickets of a step before it is due, and gathers their groups when it is.

With a lag of k, up to k + 1 steps are open at the same time. Everything that decides about a step happens in an order
that depends only on steps: the problems of step s are taken right after the outcomes of step s - 1 - k have been
observed, and its rounds of dynamic sampling and greedy baselines are sampled while the loop waits for it, with the
newest weights. When and where a ticket is sampled changes no result.

The version of weights is the step that they were published after, as in tickets. Without a lag, a step is sampled with
the weights that it updates. A version that is pinned stays in the weight store; each open step pins its own version,
and the queue pins the newest. A step edge is the moment between two steps that a checkpoint can capture
(`loop.step_edges`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansatz.loop.collect import StepCollector, StepData
from ansatz.loop.ledger import Ledger
from ansatz.models.weights import WeightSource
from ansatz.rollout.base import ResponseSource, Sampling
from ansatz.rollout.groups import PartialGroup
from ansatz.rollout.ticket import (
    Kind,
    Landed,
    OnFinished,
    Ticket,
    TicketKey,
    TicketSource,
    in_call_order,
    issue_tickets,
    ticket_from_json,
    ticket_to_json,
)
from ansatz.rollout.weight_store import StoredWeights, WeightStore
from ansatz.types import Json, Prompt, Rollout, rollout_from_json, to_json

WEIGHTS_FOLDER = "rollout_weights"
"""The folder of a checkpoint that holds the weights of its open tickets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """A step whose problems are taken and whose tickets are issued. version: version of the weights that sample it.

    partial: the groups that it resumes.
    """

    step: int
    version: int
    tickets: tuple[Ticket, ...]
    partial: tuple[PartialGroup, ...]

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts, in the order of taking their problems."""
        entries = sorted((entry, ticket.place) for ticket in self.tickets for entry in ticket.entries)
        return [self.tickets[place].prompt for _, place in entries]

    def to_json(self) -> Json:
        return {
            "step": self.step,
            "version": self.version,
            "tickets": [ticket_to_json(ticket) for ticket in self.tickets],
            "partial_rollouts": _partial_to_json(self.partial),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OpenStep:
        return cls(
            step=data["step"],
            version=data["version"],
            tickets=tuple(ticket_from_json(ticket) for ticket in data["tickets"]),
            partial=_partial_from_json(data["partial_rollouts"]),
        )


class RolloutQueue:
    """Supplies the data of each step of RL. The loop calls `open`, `gather` and `publish` once for each step.

    collector: takes problems, grades, and observes outcomes. source: samples tickets. lag: of their weights, in steps.

    sampling_of: how the rollouts of a step are sampled. store, ledger: the weights by version, and the issued tickets
    with their rollouts ("landed") on disk; None if samplers share the trainer's weights (`LiveTickets`).
    last_step: tickets of later steps are issued, so that a run that is extended continues as if it had been longer from
    the start, but they are not sampled.
    Example: `queue.open(through=step + lag)`, `queue.gather(step)`, then `queue.publish(weights, version=step)`.
    """

    def __init__(
        self,
        collector: StepCollector,
        source: TicketSource,
        *,
        lag: int,
        sampling_of: Callable[[int], Sampling],
        last_step: int,
        store: WeightStore | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._collector, self._source, self._lag = collector, source, lag
        self._sampling_of, self._last_step, self._store, self._ledger = sampling_of, last_step, store, ledger
        self._landed: Mapping[TicketKey, Landed] = {} if ledger is None else ledger.landed()
        self._open: dict[int, OpenStep] = {}
        self._partial: tuple[PartialGroup, ...] = ()
        self._opened = self._done = self._started = 0  # the last step that is open, complete, complete at `start`
        self._weights: dict[int, str] = {}  # fingerprints by version
        self._num_from_ledger = 0
        self._newest = -1  # the newest version that training uses
        self._unneeded: list[int] = []  # pins to release once the step edge after them is captured

    def start(self, weights: WeightSource, *, done: int, state: Mapping[str, Any]) -> list[int]:
        """Continue after step `done` with the result of `state` at that time; empty at the start of the stage.

        The weight store contains the versions that were saved with it. An open step without its weights, because they
        were not saved or the lag was changed in between, is sampled with the newest ones. Return these steps.
        """
        self._started = done
        self._opened, self._partial = done, _partial_from_json(state.get("partial_rollouts", ()))
        if self._store is not None:
            self._weights = {version: self._store.fingerprint(version) for version in self._store.versions()}
        steps = [OpenStep.from_json(row) for row in state.get("open_steps", ())]
        for opened in steps:
            self._pin(opened.version)
        self.publish(weights, version=done)
        renewed = [opened.step for opened in steps if opened.version not in self._weights]
        for opened in steps:
            self._add(self._with_weights(opened))
        return renewed

    def open(self, through: int) -> None:
        """Take the problems of all steps up to this one, and issue their tickets.

        Also drop the weights that no open ticket needs. `publish` does not do so: until the new step edge is captured,
        a signal may still save the edge before it, and the open tickets of that edge need them.
        """
        for version in self._unneeded:
            self._release(version)
        self._unneeded = []
        for step in range(self._opened + 1, through + 1):
            partial, self._partial = self._partial, ()
            prompts = self._collector.take(len(partial))
            unfinished = [rollout for group in partial for rollout in group.unfinished]
            version = self._available(weights_version_for(step, lag=self._lag))
            sampling = self._sampling_of(step)
            tickets = self.issue(prompts, unfinished, key=(Kind.TRAIN, step, 0), version=version, sampling=sampling)
            self._pin(version)
            self._add(OpenStep(step=step, version=version, tickets=tuple(tickets), partial=partial))

    def gather(self, step: int) -> StepData:
        """Wait for the groups of an open step, grade them, sample its later rounds and baselines, and observe
        outcomes."""
        opened = self._open[step]
        data = self._collector.collect(
            self._sampling_of(step),
            _Rounds(self, Kind.TRAIN, step, version=self._newest, first=opened.tickets),
            prompts=opened.prompts,
            partial=opened.partial,
            pending=[
                ticket.prompt.problem.id
                for later in self._open.values()
                for ticket in later.tickets
                if later.step > step
            ],
            greedy_source=_Rounds(self, Kind.BASELINE, step, version=self._newest),
        )
        self._partial = data.partial
        return data

    def sampled_with(self, step: int) -> Callable[[], StoredWeights] | None:
        """Return a function that loads the weights named by the tickets of an open step (see `train.alignment`).

        None if they are the trainer's current weights. The bits are not verified again: samplers do that when they load
        them.
        """
        version = self._open[step].version
        if self._store is None or version == self._done:
            return None
        return functools.partial(self._store.load, version, verify=False)

    def metrics(self) -> dict[str, float]:
        """Return metrics of sampling in this process, up to now. None of them is part of a run's result."""
        from_ledger = {} if self._ledger is None else {"perf/groups_from_ledger": float(self._num_from_ledger)}
        return {**from_ledger, **self._source.metrics()}

    def publish(self, weights: WeightSource, *, version: int) -> None:
        """Publish the weights after the complete step `version`, and forget the open steps up to it."""
        if self._store is None:  # the sampler shares the trainer's weights, so only the current ones exist
            self._weights.clear()
        self._weights[version] = self._source.publish(version, weights)
        self._pin(version)
        if self._newest >= 0:
            self._unneeded.append(self._newest)
        self._newest = version
        self._done = version
        for step in [step for step in self._open if step <= version]:
            self._unneeded.append(self._open.pop(step).version)

    def evaluation(self, version: int) -> ResponseSource:
        """Return a source that samples with the weights after `version`, the last complete step."""
        return _Rounds(self, Kind.EVALUATE, version, version=version)

    def state(self) -> Callable[[], Json]:
        """Return a function that makes the JSON for `start`: the open steps and the partial groups."""
        partial, steps = self._partial, tuple(self._open.values())
        return lambda: {
            "partial_rollouts": _partial_to_json(partial),
            "open_steps": [opened.to_json() for opened in steps],
        }

    def files(self) -> Callable[[Path], None]:
        """Return a function that writes the files for `start` into a folder: the weights of open tickets.

        The newest weights are left out if they are the trainer's own, which every checkpoint contains.
        """
        store, done = self._store, self._done
        versions = {self._newest, *(opened.version for opened in self._open.values())} - {done}

        def write(folder: Path) -> None:
            if store is not None and versions:
                store.save(folder / WEIGHTS_FOLDER, sorted(versions))

        return write

    def issue(
        self,
        prompts: Sequence[Prompt],
        unfinished: Sequence[Rollout],
        *,
        key: tuple[Kind, int, int],
        version: int,
        sampling: Sampling,
    ) -> list[Ticket]:
        """Issue the tickets of a round. key: kind, step and round."""
        weights = self._weights[version]
        return issue_tickets(prompts, unfinished, key=key, version=version, weights=weights, sampling=sampling)

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Have tickets sampled, unless they were finished before the run was resumed."""
        new = [ticket for ticket in tickets if self._landing(ticket) is None]
        if self._ledger is not None:
            self._ledger.issue(new)
        self._source.submit(new)

    def wait(self, tickets: Sequence[Ticket], on_finished: OnFinished) -> list[tuple[Rollout, ...]]:
        """Wait for the rollouts of each of these tickets. They must have been submitted."""
        by_key: dict[TicketKey, tuple[Rollout, ...]] = {}
        for ticket in tickets:
            if (landing := self._landing(ticket)) is not None:
                by_key[ticket.key] = landing.rollouts
                self._num_from_ledger += 1
                for rollout in landing.rollouts:
                    on_finished(rollout)
        new = [ticket for ticket in tickets if ticket.key not in by_key]
        if new:
            for ticket, rollouts in zip(new, self._source.wait(new, on_finished), strict=True):
                by_key[ticket.key] = rollouts
        return [by_key[ticket.key] for ticket in tickets]

    def _landing(self, ticket: Ticket) -> Landed | None:
        """Return the ledger's landing for a ticket, if it was issued with the same weights, noise and prompt."""
        landing = self._landed.get(ticket.key)
        return landing if landing is not None and landing.ticket == ticket else None

    def _add(self, opened: OpenStep) -> None:
        self._open[opened.step], self._opened = opened, opened.step
        if opened.step <= self._last_step:
            self.submit(opened.tickets)

    def _with_weights(self, opened: OpenStep) -> OpenStep:
        if opened.version in self._weights:
            return opened
        self._pin(self._newest)
        weights = self._weights[self._newest]
        tickets = [dataclasses.replace(each, version=self._newest, weights=weights) for each in opened.tickets]
        return dataclasses.replace(opened, version=self._newest, tickets=tuple(tickets))

    def _available(self, version: int) -> int:
        """Return the version, or the newest if it is from before this start of the run and was not saved."""
        assert version in self._weights or version < self._started, f"version {version} of the weights is gone"
        return version if version in self._weights else self._newest

    def _pin(self, version: int) -> None:
        if self._store is not None and version in self._weights:
            self._store.pin(version)

    def _release(self, version: int) -> None:
        if self._store is not None:
            self._store.release(version)
            self._weights = {kept: self._weights[kept] for kept in self._store.versions()}


def weights_version_for(step: int, *, lag: int) -> int:
    """Return the version that samples a step, counted from 1: the step after which its weights were published.

    With lag 2, steps 1, 2 and 3 are sampled with the weights after step 0, and step 4 with those after step 1.
    Example: `weights_version_for(4, lag=2)` is 1.
    """
    return max(0, step - 1 - lag)


class _Rounds:
    """The responses of one step for one purpose. Each call of `generate` is a round of tickets.

    version: version of the weights that sample them. first: the tickets of the first round, if issued before.
    """

    def __init__(
        self, queue: RolloutQueue, kind: Kind, step: int, *, version: int, first: Sequence[Ticket] = ()
    ) -> None:
        self._queue, self._kind, self._step, self._version = queue, kind, step, version
        self._first, self._round = first, 0

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        unfinished: Sequence[Rollout] = (),
        on_finished: OnFinished | None = None,
    ) -> list[Rollout]:
        tickets = self._first  # issued when the step was opened, for the same prompts and unfinished rollouts
        if not tickets:
            key = (self._kind, self._step, self._round)
            tickets = self._queue.issue(prompts, unfinished, key=key, version=self._version, sampling=sampling)
            self._queue.submit(tickets)
        self._first, self._round = (), self._round + 1
        return in_call_order(tickets, self._queue.wait(tickets, on_finished or (lambda rollout: None)))


def _partial_to_json(groups: Sequence[PartialGroup]) -> list[list[Json]]:
    return [[to_json(rollout) for rollout in group.rollouts] for group in groups]


def _partial_from_json(groups: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[PartialGroup, ...]:
    return tuple(PartialGroup(tuple(rollout_from_json(dict(row)) for row in rows)) for rows in groups)
