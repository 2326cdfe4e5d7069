from __future__ import annotations

import dataclasses
import json

import pytest
from fake_sampler import FakeSampler
from tiny_models import prompt

from ansatz.errors import RolloutError
from ansatz.rollout.base import Sampling
from ansatz.rollout.ticket import (
    Kind,
    Ticket,
    landed,
    landed_from_json,
    landed_to_json,
    sample_tickets,
    ticket_from_json,
    ticket_to_json,
)
from ansatz.types import Finish

SAMPLING = Sampling(num_samples=2, max_response_tokens=20, max_call_tokens=4, stop=("x", "y"), seed=5, step=3)


def sampler() -> FakeSampler:
    return FakeSampler(lambda prompt, sample: f"{prompt.problem.id}{sample}" * 3, version=2)


def ticket(name: str, place: int, *entries: int) -> Ticket:
    return Ticket(
        kind=Kind.TRAIN,
        step=3,
        round=1,
        place=place,
        version=2,
        weights="abc",
        sampling=SAMPLING,
        prompt=prompt(4, 5, name=name),
        entries=entries,
    )


def resumed(name: str, place: int, *entries: int) -> Ticket:
    base = ticket(name, place, *entries)
    unfinished = tuple(sampler().generate([base.prompt], SAMPLING))
    assert {rollout.finish for rollout in unfinished} == {Finish.ABORT}
    return dataclasses.replace(base, unfinished=unfinished)


def test_tickets_and_landings_survive_json() -> None:
    subject = resumed("p", 0, 4)
    assert ticket_from_json(json.loads(json.dumps(ticket_to_json(subject)))) == subject
    landing = landed(subject, sample_tickets(sampler(), [subject])[0], worker="w1", seconds=0.5)
    tickets = {subject.key: subject}
    assert landed_from_json(json.loads(json.dumps(landed_to_json(landing))), tickets) == landing


def test_the_tickets_of_a_round_are_sampled_as_in_one_call() -> None:
    """The problems of the call are b, a, b, r and r's unfinished rollouts. b has samples 0 to 3, r continues at 2."""
    tickets = [resumed("r", 0, 3), ticket("b", 1, 0, 2), ticket("a", 2, 1)]
    by_ticket = sample_tickets(sampler(), tickets)
    assert [[rollout.sample for rollout in group] for group in by_ticket] == [[2, 3, 0, 1], [0, 1, 2, 3], [0, 1]]
    prompts = [tickets[index].prompt for index in (1, 2, 1, 0)]
    expected = sampler().generate(prompts, SAMPLING, unfinished=tickets[0].unfinished)
    assert sorted(map(repr, expected)) == sorted(repr(rollout) for group in by_ticket for rollout in group)
    assert [sample_tickets(sampler(), [each])[0] for each in tickets] == by_ticket


def test_a_landing_has_all_rollouts_of_its_ticket() -> None:
    subject = ticket("a", 0, 0)
    rollouts = sample_tickets(sampler(), [subject])[0]
    assert landed(subject, rollouts).digest == landed(subject, rollouts, worker="other", seconds=9.0).digest
    with pytest.raises(RolloutError, match="asks for 2 rollouts, but 1"):
        landed(subject, rollouts[:1])


def test_the_digest_changes_with_one_log_prob() -> None:
    subject = ticket("a", 0, 0)
    first, second = sample_tickets(sampler(), [subject])[0]
    changed = dataclasses.replace(second, behavior_logps=(*second.behavior_logps[:-1], -1.0000000001))
    assert landed(subject, [first, second]).digest != landed(subject, [first, changed]).digest
