"""One response as a conversation with an engine: what to ask for next, and what to make of the answer.

An engine continues token ids and knows nothing of budgets, tools or what a stop string means here. Its answers are gone
through token by token by the rules of `rollout.response_rules`; what it drew beyond an end or a seam is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ansatz.errors import RolloutError
from ansatz.rollout.base import Sampling
from ansatz.rollout.response_rules import ResponseRules, ResponseState
from ansatz.types import Finish, Prompt, Rollout

TIES = 8  # tokens that may tie with the last of the top k before a support is counted too small

Seed = Callable[[int], "int | None"]
"""The seed of a request that continues a response of so many tokens; None: the engine's own noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Token ids to continue, and settings under the names that `vllm.SamplingParams` and its HTTP API share."""

    token_ids: tuple[int, ...]
    params: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was drawn: a log-prob a token, and how many of the likeliest tokens it names were possible."""

    token_ids: Sequence[int]
    logps: Sequence[float]
    possible: Sequence[int]


def shared_params(sampling: Sampling, *, end_ids: Sequence[int], vocab_size: int) -> dict[str, Any]:
    """What every request of one call says. logprobs: how many of the likeliest tokens are named beside the drawn one,
    enough to count a top-k support, ties included."""
    named = min(sampling.top_k + TIES, vocab_size) if sampling.top_k > 0 and sampling.temperature > 0 else 0
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "stop": list(sampling.stop),
        "stop_token_ids": [token for token in end_ids if token < vocab_size],
        "skip_special_tokens": False,  # without this, a stop string with a special token in it is never found
        "logprobs": named,
    }


class Response:
    """A rollout on its way. params: `shared_params`. seed: see `Seed`. begun: what earlier calls have of it."""

    def __init__(
        self,
        prompt: Prompt,
        sample: int,
        sampling: Sampling,
        *,
        watch: ResponseRules,
        params: dict[str, Any],
        seed: Seed,
        begun: Rollout | None = None,
    ) -> None:
        self._prompt, self._sample, self._sampling, self._watch = prompt, sample, sampling, watch
        self._params, self._seed, self._begun = params, seed, begun
        self._course = ResponseState(watch, begun.token_ids if begun else ())
        self._logps = list(begun.behavior_logps if begun else ())
        self._sizes = list(begun.num_candidates if begun else ())
        most = sampling.max_response_tokens
        self._limit = min(most, len(self._logps) + (sampling.max_call_tokens or most))
        self._force()

    @property
    def done(self) -> bool:
        return self._course.ended or len(self._course.token_ids) >= self._limit

    def request(self) -> Request:
        """What to draw next: up to the thinking budget where that is still ahead, else up to the limit."""
        drawn = len(self._course.token_ids)
        room = self._limit - drawn
        if drawn < self._watch.budget:
            room = min(room, self._watch.budget - drawn)
        least = min(max(self._sampling.min_response_tokens - drawn, 0), room)
        how = {**self._params, "max_tokens": room, "min_tokens": least, "seed": self._seed(drawn)}
        return Request(token_ids=(*self._prompt.token_ids, *self._course.token_ids), params=how)

    def take(self, answer: Answer) -> None:
        """Goes through an answer, then puts in what is forced. RolloutError where it has no tokens."""
        if not answer.token_ids:
            raise RolloutError("vLLM answered with no tokens at all; its log says why.")
        certain = self._sampling.temperature == 0
        for token, logp, possible in zip(answer.token_ids, answer.logps, answer.possible, strict=True):
            if self.done or self._course.forced >= 0:
                break
            self._put(token, 0.0 if certain else min(logp, 0.0), 1 if certain else possible)
        self._force()

    def rollout(self, *, text: Callable[[Sequence[int]], str], version: int) -> Rollout:
        counted = self._params["logprobs"] > 0 or self._sampling.temperature == 0
        token_ids, begun, finish = tuple(self._course.token_ids), self._begun, self._course.finish
        if finish is Finish.LENGTH and len(token_ids) < self._sampling.max_response_tokens:
            finish = Finish.ABORT
        return Rollout(
            prompt=self._prompt,
            sample=self._sample,
            token_ids=token_ids,
            behavior_logps=tuple(self._logps),
            num_candidates=tuple(self._sizes) if counted else (),
            min_response_tokens=self._sampling.min_response_tokens,
            sampled_mask=self._course.sampled_mask,
            text=text(token_ids),
            finish=finish,
            versions=(*begun.token_versions, *[version] * (len(token_ids) - begun.num_tokens)) if begun else (),
            version_min=begun.version_min if begun else version,
            version_max=version,
            seed=self._sampling.seed,
        )

    def _force(self) -> None:
        while self._course.forced >= 0 and not self.done:
            self._put(self._course.forced, 0.0, 1)

    def _put(self, token: int, logp: float, size: int) -> None:
        self._course.take(token)
        self._logps.append(logp)
        self._sizes.append(size)
