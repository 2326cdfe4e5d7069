"""The requests that enter the decoding batch, and the responses that leave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansatz.rollout.base import wanted_samples
from ansatz.rollout.response_rules import ResponseState
from ansatz.types import Finish, Prompt, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """Samples of one prompt, or one rollout to resume. index: its position among the requests of the call.

    partial: the rollout to resume; None for samples.
    """

    index: int
    prompt: Prompt
    samples: range
    partial: Rollout | None

    @property
    def num_rows(self) -> int:
        return len(self.samples)

    @property
    def num_tokens(self) -> int:
        """The number of response tokens so far."""
        return self.partial.num_tokens if self.partial else 0

    @property
    def context_ids(self) -> tuple[int, ...]:
        """The tokens that the cache must hold before the next one is sampled."""
        return self.prompt.token_ids + (self.partial.token_ids if self.partial else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedResponse:
    """A response that has left its slot, with all its tokens, resumed ones included. Fields as in `Rollout`.

    state: of its rules; None without any.
    """

    request_index: int
    sample: int
    token_ids: tuple[int, ...]
    behavior_logps: tuple[float, ...]
    num_candidates: tuple[int, ...]
    finish: Finish
    state: ResponseState | None


def build_requests(prompts: Sequence[Prompt], num_samples: int, unfinished: Sequence[Rollout]) -> list[SampleRequest]:
    """Build one request per prompt, then one per unfinished rollout."""
    wanted = wanted_samples(prompts, num_samples, unfinished)
    return [
        SampleRequest(index=index, prompt=prompt, samples=samples, partial=partial)
        for index, (prompt, samples, partial) in enumerate(wanted)
    ]
