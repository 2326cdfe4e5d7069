"""One response while a vLLM engine samples it: its next request, and the reading of the output.

An engine continues token ids. It knows nothing of thinking budgets, tools or our rules for stop strings. The rules of
`rollout.response_rules` therefore read its outputs token by token. Tokens that the engine sampled after an end, or
after the place of a forced token, are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ansatz.environments.base import Observation
from ansatz.environments.episode import Episode
from ansatz.errors import RolloutError
from ansatz.rollout.base import Sampling
from ansatz.rollout.response_rules import ResponseRules, ResponseState
from ansatz.types import Finish, Prompt, Rollout

TIES = 8  # how many tokens can tie with the last of the top k before candidates are undercounted

Seed = Callable[[int], "int | None"]
"""The seed of a request that continues a response of N tokens. None: the engine's own noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """Token ids to continue, and settings under the names that `vllm.SamplingParams` and its HTTP API share."""

    token_ids: tuple[int, ...]
    params: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOutput:
    """The tokens that an engine sampled. For each: its log-prob, and the number of tokens with a probability above 0
    among the most likely ones that the engine reports.

    masked: the engine has reported every token that its filters have left.
    """

    token_ids: Sequence[int]
    behavior_logps: Sequence[float]
    num_candidates: Sequence[int]
    masked: bool = False


def shared_params(
    sampling: Sampling, *, end_ids: Sequence[int], vocab_size: int, turn_ends: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the settings that all requests of one call share.

    logprobs: number of most likely tokens that the engine reports besides the sampled one. It is enough to count the
    candidates under top_k, ties included.
    """
    reported = min(sampling.top_k + TIES, vocab_size) if sampling.top_k > 0 and sampling.temperature > 0 else 0
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "stop": [*sampling.stop, *turn_ends],
        "stop_token_ids": [token for token in end_ids if token < vocab_size],
        "skip_special_tokens": False,  # without this, a stop string that contains a special token is never found
        "logprobs": reported,
    }


class PendingResponse:
    """A rollout that is not finished yet.

    params: from `shared_params`. seed: see `Seed`. partial: the rollout that an earlier call returned unfinished.
    state: its tokens, by the rules.
    """

    def __init__(
        self,
        prompt: Prompt,
        sample: int,
        sampling: Sampling,
        *,
        rules: ResponseRules,
        params: dict[str, Any],
        seed: Seed,
        partial: Rollout | None = None,
    ) -> None:
        self._prompt, self._sample, self._sampling, self._rules = prompt, sample, sampling, rules
        self._params, self._seed, self._partial = params, seed, partial
        self.state = ResponseState(rules, prompt.problem, partial)
        self._behavior_logps = list(partial.behavior_logps if partial else ())
        self._num_candidates = list(partial.num_candidates if partial else ())
        self._is_counted = params["logprobs"] > 0 or sampling.temperature == 0
        max_tokens = sampling.max_response_tokens
        self._limit = min(max_tokens, len(self._behavior_logps) + (sampling.max_call_tokens or max_tokens))
        self._append_forced()

    @property
    def done(self) -> bool:
        return self.state.ended or len(self.state.token_ids) >= self._limit

    def request(self) -> EngineRequest:
        """Return the next request: up to the thinking budget if it is not reached yet, otherwise up to the limit."""
        num_tokens = len(self.state.token_ids)
        room = self._limit - num_tokens
        if num_tokens < self._rules.thinking_budget:
            room = min(room, self._rules.thinking_budget - num_tokens)
        min_tokens = min(max(self._sampling.min_response_tokens - num_tokens, 0), room)
        params = {**self._params, "max_tokens": room, "min_tokens": min_tokens, "seed": self._seed(num_tokens)}
        return EngineRequest(token_ids=(*self._prompt.token_ids, *self.state.token_ids), params=params)

    def take(self, output: EngineOutput) -> None:
        """Append the tokens of an output up to the first end or forced token, then the forced tokens.

        Raise RolloutError if the output contains no tokens.
        """
        if not output.token_ids:
            raise RolloutError("vLLM answered a request without any tokens. Its log says why.")
        greedy = self._sampling.temperature == 0
        self._is_counted = self._is_counted or output.masked
        for token, logp, num_candidates in zip(
            output.token_ids, output.behavior_logps, output.num_candidates, strict=True
        ):
            if self.done or self.state.waiting or self.state.forced_token >= 0:
                break
            self._append(token, 0.0 if greedy else min(logp, 0.0), 1 if greedy else num_candidates)
        self._append_forced()

    @property
    def asks(self) -> tuple[Episode, str] | None:
        """The environment and the turn that it is to answer; None unless a turn has ended."""
        state = self.state
        return (state.episode, state.turn_text) if state.waiting and state.episode else None

    def observe(self, answer: Observation | None) -> None:
        """Append the environment's answer to the turn. None: the response is done."""
        self.state.observe(answer)
        max_tokens = self._sampling.max_response_tokens
        self._limit = min(max(self._limit, self.state.num_tokens_with_forced), max_tokens)
        self._append_forced()

    def rollout(self, *, text: Callable[[Sequence[int]], str], version: int) -> Rollout:
        token_ids, partial, finish = tuple(self.state.token_ids), self._partial, self.state.finish
        if finish is Finish.LENGTH and len(token_ids) < self._sampling.max_response_tokens:
            finish = Finish.ABORT
        return Rollout(
            prompt=self._prompt,
            sample=self._sample,
            token_ids=token_ids,
            behavior_logps=tuple(self._behavior_logps),
            num_candidates=tuple(self._num_candidates) if self._is_counted else (),
            min_response_tokens=self._sampling.min_response_tokens,
            sampled_mask=self.state.sampled_mask,
            text=text(token_ids),
            observations=self.state.observations(text),
            finish=finish,
            versions=(*partial.token_versions, *[version] * (len(token_ids) - partial.num_tokens)) if partial else (),
            version_min=partial.version_min if partial else version,
            version_max=version,
            seed=self._sampling.seed,
        )

    def _append_forced(self) -> None:
        while self.state.forced_token >= 0 and not self.done:
            self._append(self.state.forced_token, 0.0, 1)

    def _append(self, token: int, logp: float, num_candidates: int) -> None:
        self.state.append(token)
        self._behavior_logps.append(logp)
        self._num_candidates.append(num_candidates)
