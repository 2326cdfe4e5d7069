"""The decoding loop: requests enter, rows decode, and rows whose environment takes its time wait outside the slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ansatz.environments.base import EnvironmentSpec
from ansatz.environments.calls import EnvironmentCalls
from ansatz.models.load import Policy
from ansatz.rollout.base import Sampling
from ansatz.rollout.native.forward import DecodeStep
from ansatz.rollout.native.graphs import Capture
from ansatz.rollout.native.parking import ParkingLot
from ansatz.rollout.native.requests import FinishedResponse, SampleRequest
from ansatz.rollout.native.slots import Slots
from ansatz.rollout.response_rules import ResponseRules, build_rules


def rules_for(policy: Policy, sampling: Sampling, environment: EnvironmentSpec | None = None) -> ResponseRules | None:
    """Return the rules of a call. None if only end tokens and the length limit shape a response."""
    if not sampling.needs_rules and environment is None:
        return None
    return build_rules(sampling, policy.tokenizer, end_ids=policy.end_ids, environment=environment)


@torch.inference_mode()
def decode(
    policy: Policy,
    step: DecodeStep,
    sampling: Sampling,
    requests: Sequence[SampleRequest],
    *,
    max_slots: int,
    rules: ResponseRules | None,
    calls: EnvironmentCalls | None = None,
    capture: Capture | None = None,
) -> Iterator[FinishedResponse]:
    """Yield each response as soon as it ends. calls: what answers the turns of responses; None without environment.

    capture: makes graphs of decode steps; None: they run as they are.
    """
    waiting = list(requests)[::-1]  # `take_entering` takes them from the end
    slots = Slots(policy, step, sampling, waiting, max_slots=max_slots, rules=rules, capture=capture)
    # A row whose environment takes its time gives its slot to others (is parked) and comes back with the answer.
    parking = None if calls is None else ParkingLot(slots, calls)
    while waiting or slots.active or slots.parked:
        if parking:
            yield from parking.return_rows(wait=not slots.active and (parking.full or not waiting))
        if (parking is None or not parking.full) and (entering := slots.take_entering(waiting)):
            slots.admit(entering)
        elif slots.active:
            slots.decode()
        if parking:
            parking.answer_turns()
        yield from slots.take_finished()
