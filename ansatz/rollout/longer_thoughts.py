"""Thoughts that are made to go on (budget forcing, arXiv:2501.19393, sec. 3.1): a sampler in front of another one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ansatz.rollout.base import Sampler, Sampling
from ansatz.types import Finish, Prompt, Rollout

if TYPE_CHECKING:
    from ansatz.models.weights import WeightSource


class LongerThoughts:
    """Samples responses whose thoughts have at least `budget` tokens, if the length limit leaves room for them.

    An end of a thought that comes earlier is taken back: the tokens of `Sampling.thought_end`, or the end token of a
    response without it. Then the tokens of `wait` are forced in, and the response continues. Text before the end in
    the same token goes too. A place can use its noise a second time where the end has more tokens than `wait`.

    end_ids: the tokens that end a response. num_forced: how often `wait` was forced in so far.
    """

    def __init__(self, sampler: Sampler, tokenizer: Any, *, end_ids: Collection[int], budget: int, wait: str) -> None:
        self._sampler, self._budget, self._end_ids = sampler, budget, frozenset(end_ids)
        self._decode: Callable[[Sequence[int]], str] = tokenizer.decode
        self._wait: tuple[int, ...] = tuple(tokenizer.encode(wait, add_special_tokens=False))
        self.num_forced = 0

    def load_weights(self, source: WeightSource) -> None:
        self._sampler.load_weights(source)

    def close(self) -> None:
        self._sampler.close()

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        unfinished: Sequence[Rollout] = (),
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        thinking = replace(sampling, stop=(*sampling.stop, sampling.thought_end))
        rollouts = self._sampler.generate(prompts, thinking, unfinished=unfinished)
        forced = [set[int]() for _ in rollouts]
        waiting = list(range(len(rollouts)))
        while waiting:
            early = dict[int, Rollout]()
            for index in waiting:
                kept = self._kept(rollouts[index], sampling)
                if kept is not None:
                    early[index] = self._with_wait(rollouts[index], kept)
                    forced[index] |= set(range(kept, kept + len(self._wait)))
            self._resume(rollouts, early, thinking)
            waiting = list(early)
        ended = {index: each for index, each in enumerate(rollouts) if self._is_stopped(each, sampling)}
        self._resume(rollouts, ended, sampling)
        for index, rollout in enumerate(rollouts):
            mask = tuple(each and n not in forced[index] for n, each in enumerate(rollout.token_mask))
            finish = Finish.LENGTH if self._is_stopped(rollout, sampling, has_room=False) else rollout.finish
            rollouts[index] = replace(rollout, sampled_mask=() if all(mask) else mask, finish=finish)
            if on_finished:
                on_finished(rollouts[index])
        return rollouts

    def _resume(self, rollouts: list[Rollout], ended: dict[int, Rollout], sampling: Sampling) -> None:
        """Replace these rollouts by their continuations."""
        continued = self._sampler.generate((), sampling, unfinished=list(ended.values())) if ended else []
        rollouts[:] = [dict(zip(ended, continued, strict=True)).get(index, each) for index, each in enumerate(rollouts)]

    def _kept(self, rollout: Rollout, sampling: Sampling) -> int | None:
        """Return the number of tokens before an end that came too early; None for any other rollout."""
        ids, text = rollout.token_ids, self._decode(rollout.token_ids)
        if sampling.thought_end in self._decode(ids[:-1]):
            return None
        if sampling.thought_end in text:
            before = text.partition(sampling.thought_end)[0]
            kept = next(n for n in range(len(ids) - 1, -1, -1) if before.startswith(self._decode(ids[:n])))
        elif ids and ids[-1] in self._end_ids:
            kept = len(ids) - 1
        else:
            return None
        has_room = kept + len(self._wait) < sampling.max_response_tokens
        return kept if kept < self._budget and has_room else None

    def _with_wait(self, rollout: Rollout, kept: int) -> Rollout:
        self.num_forced += 1
        added = len(self._wait)
        return replace(
            rollout,
            token_ids=rollout.token_ids[:kept] + self._wait,
            behavior_logps=rollout.behavior_logps[:kept] + (0.0,) * added,
            num_candidates=rollout.num_candidates and rollout.num_candidates[:kept] + (1,) * added,
            sampled_mask=rollout.token_mask[:kept] + (False,) * added,
            versions=(),
            finish=Finish.ABORT,
        )

    def _is_stopped(self, rollout: Rollout, sampling: Sampling, *, has_room: bool = True) -> bool:
        """Tell whether the end of a thought stopped a response that has room for its answer, or has none."""
        text, end = self._decode(rollout.token_ids), sampling.thought_end
        completed = text.count(end) > self._decode(rollout.token_ids[:-1]).count(end)
        is_room = rollout.num_tokens < sampling.max_response_tokens
        return completed and is_room is has_room and not any(stop in text for stop in sampling.stop)
