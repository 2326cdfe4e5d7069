"""The host of a rollout worker: one sampler with its own policy, which loads weights by version from the store."""

from __future__ import annotations

from collections.abc import Sequence

from ansatz.cluster.base import Emit
from ansatz.cluster.health import Confirmation
from ansatz.errors import RolloutError
from ansatz.models.load import Policy
from ansatz.models.weights import LiveWeights, load_trained
from ansatz.rollout.base import Sampler, Sampling
from ansatz.rollout.ticket import Ticket, sample_tickets
from ansatz.rollout.weight_store import WeightStore
from ansatz.types import Problem, Prompt, Rollout

PROBE_TOKENS = 8
PROBE = Sampling(num_samples=1, max_response_tokens=PROBE_TOKENS, min_response_tokens=PROBE_TOKENS, seed=0, step=0)


def probe_prompt(policy: Policy) -> Prompt:
    """Return a fixed prompt of a few tokens that every vocabulary contains."""
    problem = Problem(id="probe", question="", source="probe", split="probe")
    size = policy.head.weight.shape[0]
    return Prompt(problem=problem, text="", token_ids=tuple(token % size for token in (7, 11, 13, 17)))


def probe(sampler: Sampler, policy: Policy) -> Confirmation:
    """Return the version of the policy that a sampler reports, and the log-probs of its response to the probe prompt.

    The response is sampled and not greedy, because greedy log-probs are 0. Its length is PROBE_TOKENS.
    """
    (rollout,) = sampler.generate([probe_prompt(policy)], PROBE)
    return Confirmation(policy_version=rollout.version_max, logps=rollout.behavior_logps)


class SamplerHost:
    """Answers the calls of `rollout.pool`: push, probe and sample. All of them can be repeated."""

    def __init__(self, policy: Policy, sampler: Sampler, store: WeightStore) -> None:
        self._policy, self._sampler, self._store = policy, sampler, store

    def push(self, version: int, fingerprint: str, emit: Emit) -> Confirmation:
        """Load a version of the weights, and probe the sampler with it.

        Raise RolloutError if they are other weights.
        """
        stored = self._store.load(version)
        if stored.fingerprint != fingerprint:
            raise RolloutError(
                f"version {version} in the store has the weights {stored.fingerprint}, not {fingerprint}"
            )
        load_trained(self._policy, stored.tensors)
        self._sampler.load_weights(LiveWeights(policy=self._policy, version=stored.policy_version))
        return self.probe(emit)

    def probe(self, emit: Emit) -> Confirmation:
        """Generate a few tokens with the sampler's current weights."""
        return probe(self._sampler, self._policy)

    def sample(self, tickets: Sequence[Ticket], emit: Emit) -> int:
        """Sample tickets of one round in one call. Emit (key, rollouts) of each group once it is complete.

        Return the number of tickets.
        """
        groups = _Groups(tickets, emit)
        rollouts = sample_tickets(self._sampler, tickets, on_finished=groups.add)
        for ticket, group in zip(tickets, rollouts, strict=True):
            groups.emit_once(ticket, group)
        return len(tickets)


class _Groups:
    """Emits a group when its last rollout has been reported. A problem has only one ticket in a round."""

    def __init__(self, tickets: Sequence[Ticket], emit: Emit) -> None:
        self._emit = emit
        self._ticket_of = {ticket.prompt.problem.id: ticket for ticket in tickets}
        self._finished: dict[str, dict[int, Rollout]] = {name: {} for name in self._ticket_of}
        self._emitted = set[str]()

    def add(self, rollout: Rollout) -> None:
        name = rollout.prompt.problem.id
        ticket, finished = self._ticket_of[name], self._finished[name]
        finished[rollout.sample] = rollout
        if len(finished) == ticket.num_rollouts:
            resumed = [old.sample for old in ticket.unfinished]
            new = [rollout for sample, rollout in sorted(finished.items()) if sample not in resumed]
            self.emit_once(ticket, (*new, *(finished[sample] for sample in resumed)))

    def emit_once(self, ticket: Ticket, rollouts: tuple[Rollout, ...]) -> None:
        if ticket.prompt.problem.id not in self._emitted:
            self._emitted.add(ticket.prompt.problem.id)
            self._emit((ticket.key, rollouts))
