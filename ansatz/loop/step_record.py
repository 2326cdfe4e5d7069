"""What a step of RL stores of its groups: their advantages, and of a few what the update did to each token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ansatz.data.keyed_random import KeyedRandom
from ansatz.loop.collect import StepData
from ansatz.track.rollout_rows import StoredGroup
from ansatz.track.rollouts import has_signal
from ansatz.track.token_file import RECORD_BYTES, TokenFacts
from ansatz.train.sample import TrainSample
from ansatz.train.trainer import Trainer
from ansatz.types import Rollout


class StepRecord:
    """Made before the update of a step; `finish` is called after it.

    samples: those of the batch, in the order of the step's groups. find_ends: see `StepTokens.find_ends`. max_mb: of
    tokens to store (`choose_groups`).
    """

    def __init__(
        self,
        data: StepData,
        samples: Sequence[TrainSample],
        batch: Any,
        trainer: Trainer[Any],
        *,
        step: int,
        max_mb: float,
        find_ends: Callable[[Rollout], Sequence[int]],
    ) -> None:
        self._data, self._trainer, self._find_ends = data, trainer, find_ends
        self._advantages = trainer.advantages(batch, samples)
        watched = choose_groups(data, step, max_mb=max_mb)
        starts = [0]
        for group in data.groups:
            starts.append(starts[-1] + len(group.members))
        self._starts = starts
        self._places = {place: range(starts[place], starts[place + 1]) for place in watched}
        self._samples = [samples[index] for places in self._places.values() for index in places]
        self._before = self._measure()

    def finish(self) -> list[StoredGroup]:
        """Return every sampled group as it is stored."""
        after = iter(zip(self._before, self._measure(), strict=True))
        tokens = {
            place: [self._describe(member.rollout, *next(after)) for member in self._data.groups[place].members]
            for place in self._places
        }
        places = {id(group): place for place, group in enumerate(self._data.groups)}
        return [
            StoredGroup(group=group)
            if (place := places.get(id(group))) is None
            else StoredGroup(
                group=group,
                advantages=self._advantages[self._starts[place] : self._starts[place + 1]],
                tokens=tokens.get(place, ()),
            )
            for group in self._data.sampled
        ]

    def _measure(self) -> Sequence[Sequence[float]]:
        return self._trainer.token_logps(self._samples) if self._samples else ()

    def _describe(self, rollout: Rollout, before: Sequence[float], after: Sequence[float]) -> TokenFacts:
        ends, sampled = self._find_ends(rollout), rollout.sampled_mask
        return TokenFacts(rollout.token_ids, ends, rollout.behavior_logps, before, after, sampled)


def choose_groups(data: StepData, step: int, *, max_mb: float) -> list[int]:
    """Return the places of the groups to look at: those with a signal if there are any, and others at other steps.

    One group in 32 is looked at, at least one and at most four, so that two more forward passes cost about a hundredth
    of a step. A group whose tokens would exceed max_mb megabytes in all is left out.
    """
    able = [place for place, group in enumerate(data.groups) if has_signal(group.rewards)]
    able = able or list(range(len(data.groups)))
    chosen, left = list[int](), max_mb * 1e6 / RECORD_BYTES
    for place in KeyedRandom("watched", step).shuffled(able)[: min(max(len(data.groups) // 32, 1), 4)]:
        tokens = sum(len(member.rollout.token_ids) for member in data.groups[place].members)
        if tokens <= left:
            chosen.append(place)
            left -= tokens
    return sorted(chosen)
