"""The record of an RL step's groups: their advantages, and for a few the effect of the update on each token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ansatz.data.keyed_random import KeyedRandom
from ansatz.loop.collect import StepData
from ansatz.track.rollout_rows import StoredGroup
from ansatz.track.token_file import RECORD_BYTES, TokenFacts
from ansatz.train.sample import TrainSample
from ansatz.train.trainer import StepReport, TokenLogps, Trainer
from ansatz.types import Rollout

MAX_MB = 4.0
"""Most megabytes of a step's tokens that are stored, at 21 bytes each."""


class StepRecord:
    """Made before the update of a step; `finish` is called after it.

    samples: the samples of the batch, in the order of the step's groups. find_ends: see `StepTokens.find_ends`. max_mb:
    megabytes of tokens to store (`choose_groups`).
    """

    def __init__(
        self,
        data: StepData,
        samples: Sequence[TrainSample],
        trainer: Trainer[Any],
        *,
        step: int,
        max_mb: float = MAX_MB,
        find_ends: Callable[[Rollout], Sequence[int]],
    ) -> None:
        self._data, self._trainer, self._find_ends = data, trainer, find_ends
        members = [member for group in data.groups for member in group.learned]
        self._places = {id(member): place for place, member in enumerate(members)}
        groups = choose_groups(data, step, max_mb=max_mb)
        self._watched = [member for place in groups for member in data.groups[place].learned]
        self._samples = [samples[self._places[id(member)]] for member in self._watched]
        self._before = self._measure()
        self._reference = self._measure(of_reference=True) or [TokenLogps((), ())] * len(self._before)

    def finish(self, report: StepReport) -> list[StoredGroup]:
        """Return every sampled group in its stored form. report: of the update."""
        known = zip(self._watched, self._before, self._measure(), self._reference, strict=True)
        tokens = {id(member): self._describe(member.rollout, *values) for member, *values in known}
        return [
            StoredGroup(
                group=group,
                seen=[report.rollouts.get(self._places.get(id(member), -1), {}) for member in group.members],
                tokens=[tokens[id(member)] for member in group.members if id(member) in tokens],
            )
            for group in self._data.sampled
        ]

    def _measure(self, *, of_reference: bool = False) -> Sequence[TokenLogps]:
        return self._trainer.token_logps(self._samples, of_reference=of_reference) if self._samples else ()

    def _describe(self, rollout: Rollout, before: TokenLogps, after: TokenLogps, reference: TokenLogps) -> TokenFacts:
        logps = rollout.behavior_logps, before.logps, after.logps, before.entropies, reference.logps
        return TokenFacts(rollout.token_ids, self._find_ends(rollout), *logps, rollout.sampled_mask)


def choose_groups(data: StepData, step: int, *, max_mb: float) -> list[int]:
    """Return the places of the groups to look at: ones with a signal if there are any, and others at other steps.

    One group in 32 is looked at, at least one and at most four, so that two more forward passes cost about a hundredth
    of a step. A group is left out if its tokens would exceed max_mb megabytes in all, or if no reward applies to one of
    its members.
    """
    whole = [place for place, group in enumerate(data.groups) if len(group.learned) == len(group.members)]
    able = [place for place in whole if data.groups[place].has_signal] or whole
    chosen, left = list[int](), max_mb * 1e6 / RECORD_BYTES
    for place in KeyedRandom("watched", step).shuffled(able)[: min(max(len(data.groups) // 32, 1), 4)]:
        tokens = sum(len(member.rollout.token_ids) for member in data.groups[place].members)
        if tokens <= left:
            chosen.append(place)
            left -= tokens
    return sorted(chosen)
