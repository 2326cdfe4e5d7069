"""A sampler without a model, for tests of the code above it: responses are a function of prompt and sample.

Tokens are the UTF-8 bytes of the response, followed by END.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansatz.environments.base import EnvironmentSpec
from ansatz.environments.calls import EnvironmentCalls, environment_calls
from ansatz.environments.endings import Endings
from ansatz.rollout.base import Sampling, wanted_samples
from ansatz.rollout.response_rules import ResponseRules, ResponseState
from ansatz.types import Finish, Prompt, Rollout

if TYPE_CHECKING:
    from torch import Tensor

    from ansatz.models.weights import WeightSource

END = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeWeights:
    """A `WeightSource` without a model: it has a version and no tensors."""

    version: int

    def tensors(self) -> Mapping[str, Tensor]:
        return {}

    def trained(self) -> Mapping[str, Tensor]:
        return {}


class FakeSampler:
    """Samples the text `respond(prompt, sample)`, cut off at max_response_tokens.

    Greedy sampling asks for sample 0. Spaces pad a text that is shorter than min_response_tokens. After forced tokens
    the text continues where it was. Every log-prob is -1.0, or 0.0 when greedy. `weights` is the source that was
    loaded last.
    """

    def __init__(
        self,
        respond: Callable[[Prompt, int], str],
        *,
        version: int = 0,
        environment: EnvironmentSpec | None = None,
    ) -> None:
        self._respond, self._environment = respond, environment
        self.version = version
        self.weights: WeightSource | None = None
        self.closed = False

    def load_weights(self, source: WeightSource) -> None:
        self.weights, self.version = source, source.version

    def close(self) -> None:
        self.closed = True

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        unfinished: Sequence[Rollout] = (),
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        wanted = [
            (prompt, sample, partial)
            for prompt, samples, partial in wanted_samples(prompts, sampling.num_samples, unfinished)
            for sample in samples
        ]
        rules = ResponseRules(
            sampling,
            end_ids={END},
            encode=str.encode,
            decode=_decode,
            environment=self._environment,
            encode_messages=lambda problem, messages: "".join(f"[{m['content']}]" for m in messages).encode(),
        )
        with environment_calls(self._environment) as calls:
            endings = Endings(calls, on_finished)
            for index, (prompt, sample, partial) in enumerate(wanted):
                rollout, state = self._rollout(prompt, sample, partial, sampling, rules, calls)
                endings.add(index, rollout, episode=state.episode, open_turn=state.open_turn)
            rollouts = endings.wait()
        return [rollouts[index] for index in range(len(wanted))]

    def _rollout(
        self,
        prompt: Prompt,
        sample: int,
        partial: Rollout | None,
        sampling: Sampling,
        rules: ResponseRules,
        calls: EnvironmentCalls | None,
    ) -> tuple[Rollout, ResponseState]:
        greedy = sampling.temperature == 0
        script = self._respond(prompt, 0 if greedy else sample).encode()
        state = ResponseState(rules, prompt.problem, partial)
        num_old, num_sampled = len(state.token_ids), sum(state.is_sampled)
        rest = iter((*script.ljust(sampling.min_response_tokens), END)[num_sampled:])
        limit = min(sampling.max_response_tokens, num_old + (sampling.max_call_tokens or sampling.max_response_tokens))
        while not state.ended and len(state.token_ids) < limit:
            state.append(next(rest) if state.forced_token < 0 else state.forced_token)
            if state.waiting and calls and state.episode:
                state.observe(calls.answer(state.episode, state.turn_text))
                limit = min(max(limit, state.num_tokens_with_forced), sampling.max_response_tokens)
        token_ids, logp = tuple(state.token_ids), 0.0 if greedy else -1.0
        is_partial = state.finish is Finish.LENGTH and len(token_ids) < sampling.max_response_tokens
        rollout = Rollout(
            prompt=prompt,
            sample=sample,
            token_ids=token_ids,
            behavior_logps=tuple(logp if is_sampled else 0.0 for is_sampled in state.is_sampled),
            text=_decode(token_ids),
            observations=state.observations(_decode),
            finish=Finish.ABORT if is_partial else state.finish,
            versions=(*partial.token_versions, *(self.version,) * (len(token_ids) - num_old)) if partial else (),
            version_min=partial.version_min if partial else self.version,
            version_max=self.version,
            seed=sampling.seed,
            min_response_tokens=sampling.min_response_tokens,
            sampled_mask=state.sampled_mask,
        )
        return rollout, state


def _decode(token_ids: Sequence[int]) -> str:
    return bytes(token for token in token_ids if token != END).decode(errors="ignore")
