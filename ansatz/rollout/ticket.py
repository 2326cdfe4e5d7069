"""Tickets: orders to sample a group with certain weights, and the sources that sample them.

A ticket is issued before its group is sampled. It fixes the step that the group belongs to, the version of the weights,
and the keys of the noise. The results depend on nothing else: whoever samples it, whenever and however often, the same
rollouts result.

A source holds the weights that were published to it, and answers tickets. `LiveTickets` samples with the trainer's own
weights, as a run without lag does. `StoredTickets` samples in this process too, with a policy of its own that loads the
version that a ticket names.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple, Protocol

from ansatz.errors import RolloutError
from ansatz.models.load import Policy
from ansatz.models.weights import LiveWeights, WeightSource, load_trained
from ansatz.rollout.base import Sampler, Sampling
from ansatz.rollout.weight_store import WeightStore
from ansatz.types import Json, Prompt, Rollout, prompt_from_json, rollout_from_json

OnFinished = Callable[[Rollout], None]


class Kind(StrEnum):
    """The purpose of a ticket's rollouts."""

    TRAIN = "train"
    BASELINE = "baseline"  # the greedy responses that ReMax compares with
    EVALUATE = "evaluate"


class TicketKey(NamedTuple):
    """The name of a ticket within a run, until the run is rolled back to an earlier step."""

    kind: Kind
    step: int
    round: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One group to sample.

    step: the step that uses the group. round: 0, or the number of the round of dynamic sampling; each call for samples
    within a step is a round of its own. place: the index of the ticket in its round.
    version: the step after which the weights to sample with were published; 0 is the policy at the start of the stage.
    It counts steps of RL. The versions in a `Rollout` count optimizer steps.
    weights: the fingerprint of these weights (`weight_store.fingerprint`); empty if samplers share the trainer's own.
    After a rollback to an earlier step, other weights get the same version, but not the same fingerprint.
    sampling: the options, with the keys of the noise (seed and step).
    entries: the indices of the prompt in the round's list of prompts. Each stands for `sampling.num_samples` new
    responses. More than one if the round takes a problem twice; empty if the ticket only resumes.
    unfinished: rollouts of the group to resume.
    """

    kind: Kind
    step: int
    round: int
    place: int
    version: int
    weights: str
    sampling: Sampling
    prompt: Prompt
    entries: tuple[int, ...] = ()
    unfinished: tuple[Rollout, ...] = ()

    @property
    def key(self) -> TicketKey:
        return TicketKey(self.kind, self.step, self.round, self.place)

    @property
    def num_rollouts(self) -> int:
        return len(self.entries) * self.sampling.num_samples + len(self.unfinished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The rollouts of a ticket: the new ones in the order of their samples, then the resumed ones in their order.

    digest: of the rollouts (see `digest`). Two landings of one ticket have the same digest.
    worker: who sampled them. seconds: how long that took; neither is part of the result.
    """

    ticket: Ticket
    rollouts: tuple[Rollout, ...]
    digest: str
    worker: str
    seconds: float


def landed(ticket: Ticket, rollouts: Sequence[Rollout], *, worker: str = "", seconds: float = 0.0) -> Landed:
    """Make the landing of a ticket. Raise RolloutError unless there are as many rollouts as the ticket asks for."""
    if len(rollouts) != ticket.num_rollouts:
        raise RolloutError(
            f"ticket {tuple(ticket.key)} asks for {ticket.num_rollouts} rollouts, but {len(rollouts)} were sampled."
        )
    return Landed(ticket=ticket, rollouts=tuple(rollouts), digest=digest(rollouts), worker=worker, seconds=seconds)


def digest(rollouts: Sequence[Rollout]) -> str:
    """Compute the SHA-256 of everything in the rollouts except their prompts: tokens, log-probs, versions, the way
    they ended."""
    text = json.dumps([_without_prompt(rollout) for rollout in rollouts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sample_tickets(
    sampler: Sampler, tickets: Sequence[Ticket], *, on_finished: Callable[[Rollout], None] | None = None
) -> list[tuple[Rollout, ...]]:
    """Sample the rollouts of each ticket in one call.

    All tickets must be of one round, and the sampler must hold their weights. They need not be all of the round: the
    samples of a problem are numbered within a call, and a round contains only one ticket of a problem.
    """
    if not tickets:
        return []
    entries = sorted((entry, index) for index, ticket in enumerate(tickets) for entry in ticket.entries)
    prompts = [tickets[index].prompt for _, index in entries]
    owners = [index for _, index in entries for _ in range(tickets[index].sampling.num_samples)]
    owners += [index for index, ticket in enumerate(tickets) for _ in ticket.unfinished]
    unfinished = [rollout for ticket in tickets for rollout in ticket.unfinished]
    rollouts: list[list[Rollout]] = [[] for _ in tickets]
    sampled = sampler.generate(prompts, tickets[0].sampling, unfinished=unfinished, on_finished=on_finished)
    for index, rollout in zip(owners, sampled, strict=True):
        rollouts[index].append(rollout)
    return [tuple(group) for group in rollouts]


def issue_tickets(
    prompts: Sequence[Prompt],
    unfinished: Sequence[Rollout],
    *,
    key: tuple[Kind, int, int],
    version: int,
    weights: str,
    sampling: Sampling,
) -> list[Ticket]:
    """Issue the tickets of one round, as one call of `Sampler.generate` would get its prompts and unfinished rollouts.

    Resumed groups come first, in the order of `unfinished`. key: kind, step and round of the tickets.
    """
    entries: dict[str, list[int]] = {rollout.prompt.problem.id: [] for rollout in unfinished}
    resumed: dict[str, list[Rollout]] = {problem_id: [] for problem_id in entries}
    prompt_of = {rollout.prompt.problem.id: rollout.prompt for rollout in unfinished}
    for rollout in unfinished:
        resumed[rollout.prompt.problem.id].append(rollout)
    for entry, prompt in enumerate(prompts):
        entries.setdefault(prompt.problem.id, []).append(entry)
        prompt_of.setdefault(prompt.problem.id, prompt)
    kind, step, round_number = key
    return [
        Ticket(
            kind=kind,
            step=step,
            round=round_number,
            place=place,
            version=version,
            weights=weights,
            sampling=sampling,
            prompt=prompt_of[problem_id],
            entries=tuple(entries[problem_id]),
            unfinished=tuple(resumed.get(problem_id, ())),
        )
        for place, problem_id in enumerate(entries)
    ]


def in_call_order(tickets: Sequence[Ticket], groups: Sequence[Sequence[Rollout]]) -> list[Rollout]:
    """Return the rollouts of a round's tickets in the order of `Sampler.generate`: by prompt and sample, then
    resumed ones."""
    rest = [iter(group) for group in groups]
    entries = sorted((entry, index) for index, ticket in enumerate(tickets) for entry in ticket.entries)
    ordered = [rollout for _, index in entries for rollout in islice(rest[index], tickets[index].sampling.num_samples)]
    return ordered + [rollout for group in rest for rollout in group]


def ticket_to_json(ticket: Ticket) -> Json:
    """Return a ticket as plain JSON."""
    return {
        **_fields(ticket),
        "sampling": _fields(ticket.sampling),
        "prompt": {**_fields(ticket.prompt), "problem": _fields(ticket.prompt.problem)},
        "entries": list(ticket.entries),
        "unfinished": [_without_prompt(rollout) for rollout in ticket.unfinished],
    }


def ticket_from_json(data: Json) -> Ticket:
    """Read the result of `ticket_to_json`."""
    fields = dict(data)
    prompt, sampling = prompt_from_json(fields.pop("prompt")), dict(fields.pop("sampling"))
    return Ticket(
        kind=Kind(fields.pop("kind")),
        sampling=Sampling(stop=tuple(sampling.pop("stop")), **sampling),
        prompt=prompt,
        entries=tuple(fields.pop("entries")),
        unfinished=tuple(rollout_from_json(row, prompt) for row in fields.pop("unfinished")),
        **fields,
    )


def landed_to_json(landing: Landed) -> Json:
    """Return a landing as plain JSON, with the key of its ticket instead of the ticket."""
    return {
        "ticket": list(landing.ticket.key),
        "rollouts": [_without_prompt(rollout) for rollout in landing.rollouts],
        "digest": landing.digest,
        "worker": landing.worker,
        "seconds": landing.seconds,
    }


def landed_from_json(data: Json, tickets: Mapping[TicketKey, Ticket]) -> Landed:
    """Read the result of `landed_to_json`, with the tickets by key. Raise KeyError if its ticket is not among them."""
    kind, *numbers = data["ticket"]
    ticket = tickets[TicketKey(Kind(kind), *numbers)]
    return Landed(
        ticket=ticket,
        rollouts=tuple(rollout_from_json(row, ticket.prompt) for row in data["rollouts"]),
        digest=data["digest"],
        worker=data["worker"],
        seconds=data["seconds"],
    )


def _without_prompt(rollout: Rollout) -> Json:
    """Return a rollout as JSON, without its prompt, which the ticket contains."""
    fields = _fields(rollout)
    del fields["prompt"]
    if not rollout.observations:
        del fields["observations"]
    if rollout.environment_reward is None:
        del fields["environment_reward"]
    else:
        fields["environment_reward"] = dataclasses.asdict(rollout.environment_reward)
    return fields


def _fields(record: Any) -> Json:
    """Return the fields of a dataclass. `types.to_json` would copy all their contents."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


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
