"""A sampler without a model, for tests of what stands above: responses are a function of prompt and sample.

Tokens are the UTF-8 bytes of the response, then END.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansatz.rollout.base import Sampling, Tool, first_samples
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


class FakeSampler:
    """respond(prompt, sample) is the text, cut at max_response_tokens; greedy sampling asks for it as sample 0. A text
    shorter than min_response_tokens is filled up with spaces. Where tokens are forced in, the text goes on after them.

    Every log-prob is -1.0, or 0.0 when greedy. `weights` is the source that was loaded last.
    """

    def __init__(self, respond: Callable[[Prompt, int], str], *, version: int = 0, observe: Tool | None = None) -> None:
        self._respond, self._observe = respond, observe
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
        firsts = first_samples(prompts, sampling.num_samples, unfinished)
        wanted: list[tuple[Prompt, int, Rollout | None]] = [
            (prompt, sample, None)
            for prompt, first in zip(prompts, firsts, strict=True)
            for sample in range(first, first + sampling.num_samples)
        ]
        wanted += [(begun.prompt, begun.sample, begun) for begun in unfinished]
        watch = ResponseRules(sampling, end_ids={END}, encode=str.encode, decode=_decode, observe=self._observe)
        out: list[Rollout] = []
        for prompt, sample, begun in wanted:
            out.append(self._rollout(prompt, sample, begun, sampling, watch))
            if on_finished:
                on_finished(out[-1])
        return out

    def _rollout(
        self, prompt: Prompt, sample: int, begun: Rollout | None, sampling: Sampling, watch: ResponseRules
    ) -> Rollout:
        greedy = sampling.temperature == 0
        script = self._respond(prompt, 0 if greedy else sample).encode()
        course = ResponseState(watch, begun.token_ids if begun else ())
        old, own_so_far = len(course.token_ids), sum(course.sampled)
        own = iter((*script.ljust(sampling.min_response_tokens), END)[own_so_far:])
        limit = min(sampling.max_response_tokens, old + (sampling.max_call_tokens or sampling.max_response_tokens))
        while not course.ended and len(course.token_ids) < limit:
            course.take(next(own) if course.forced < 0 else course.forced)
        token_ids, logp = tuple(course.token_ids), 0.0 if greedy else -1.0
        cut = course.finish is Finish.LENGTH and len(token_ids) < sampling.max_response_tokens
        return Rollout(
            prompt=prompt,
            sample=sample,
            token_ids=token_ids,
            behavior_logps=tuple(logp if chosen else 0.0 for chosen in course.sampled),
            text=_decode(token_ids),
            finish=Finish.ABORT if cut else course.finish,
            versions=(*begun.token_versions, *(self.version,) * (len(token_ids) - old)) if begun else (),
            version_min=begun.version_min if begun else self.version,
            version_max=self.version,
            seed=sampling.seed,
            min_response_tokens=sampling.min_response_tokens,
            sampled_mask=course.sampled_mask,
        )


def _decode(token_ids: Sequence[int]) -> str:
    return bytes(token for token in token_ids if token != END).decode(errors="ignore")
