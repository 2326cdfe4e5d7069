"""The interface of rollout engines: `generate`, `load_weights` and `close`. `rollout.engines` makes one by its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ansatz.config.sampling import THOUGHT_END, SamplingOptions
from ansatz.errors import ModelError
from ansatz.types import Prompt, Rollout

if TYPE_CHECKING:  # it imports torch, and this file serves processes without it
    from ansatz.models.weights import WeightSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The options of sampling.

    Behaviour log-probs come from the distribution after every filter: temperature, the mask on end-of-sequence tokens,
    top-k, top-p and min-p.

    Example: `Sampling(num_samples=8, max_response_tokens=256, temperature=0.7)`.

    num_samples: responses per prompt.
    max_response_tokens: a response is cut off at this length (Finish.LENGTH).
    temperature: divides the logits. 0 is greedy; log-probs are then 0, because the choice is certain.
    top_k: keep the k most likely tokens. 0 is off.
    top_p: in (0, 1]. Keep the most likely tokens whose total probability reaches top_p. 1 is off.
    min_p: in [0, 1]. Drop tokens that are less likely than min_p times the most likely one. 0 is off.
    min_response_tokens: end-of-sequence tokens are masked out for the first N tokens. Stop strings still end a
        response.
    max_call_tokens: one call of `generate` adds at most N tokens to a response. A response that has not ended by then
        is returned unfinished (Finish.ABORT), and a later call can resume it. No observation is cut short. 0 is off.
    stop: a response ends as soon as its sampled text, special tokens included, contains one of these strings. Its
        tokens stay as they were sampled.
    thinking_budget: a response of N tokens without `thought_end` ("</think>") gets the tokens of `closing` forced in,
        and then continues with its answer. 0 is off.
    seed, step: the random numbers (the noise) that choose a token are computed from these two, the problem's id, the
        sample's index and the token's position. A response therefore does not depend on the rest of the batch.
        step: the step of RL.
    """

    num_samples: int
    max_response_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    min_response_tokens: int = 0
    max_call_tokens: int = 0
    stop: tuple[str, ...] = ()
    thinking_budget: int = 0
    thought_end: str = THOUGHT_END
    closing: str = THOUGHT_END
    seed: int = 0
    step: int = 0

    @property
    def limits_candidates(self) -> bool:
        """Tell whether tokens are sampled from fewer candidates than the whole vocabulary."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0 or self.temperature == 0

    @property
    def needs_rules(self) -> bool:
        """Tell whether a response is shaped by more than end tokens and the length limit (see
        `rollout.response_rules`)."""
        return bool(self.stop) or self.thinking_budget > 0

    @classmethod
    def of(cls, options: SamplingOptions, *, seed: int, step: int = 0, max_call_tokens: int = 0) -> Sampling:
        """Return the sampling options of a recipe's section or of a command, with seed and step of the noise.

        options.max_response_tokens must be above 0. The default of commands, 0, means the room that the longest prompt
        leaves in the model's context. Only a caller that knows the prompts can resolve it.
        """
        values = {name: getattr(options, name) for name in SamplingOptions.model_fields}
        num_samples = values.pop("samples_per_prompt")
        return cls(num_samples=num_samples, **values, max_call_tokens=max_call_tokens, seed=seed, step=step)

    def greedy(self) -> Sampling:
        """Return options for one response per prompt, always the most likely token, sampled to its end in one call."""
        return dataclasses.replace(
            self, num_samples=1, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, max_call_tokens=0
        )


def check_prompts(prompts: Sequence[Prompt], sampling: Sampling, *, limit: int, whose: str, advice: str) -> None:
    """Raise ModelError for a prompt without tokens, or one that leaves less room in the context than a response can
    take. limit: the tokens of the context. whose, advice: for the message."""
    for prompt in prompts:
        if not prompt.token_ids:
            raise ModelError(
                f"the prompt of problem {prompt.problem.id!r} has no tokens. Use a template that adds some text."
            )
        if len(prompt.token_ids) + sampling.max_response_tokens > limit:
            raise ModelError(
                f"a prompt of {len(prompt.token_ids)} tokens plus rollout.max_response_tokens = "
                f"{sampling.max_response_tokens} exceeds the {whose} context of {limit} tokens. {advice}"
            )


def wanted_samples(
    prompts: Sequence[Prompt], num_samples: int, unfinished: Sequence[Rollout]
) -> list[tuple[Prompt, range, Rollout | None]]:
    """Return each prompt with the indices of its samples, then each unfinished rollout with its prompt and its index.

    If a problem occurs twice in a call or has unfinished rollouts, its indices continue, so that no two responses share
    their noise. Example: prompts a, b, a with 4 samples each start at 0, 0, 4.
    """
    next_sample: dict[str, int] = {}
    for rollout in unfinished:
        problem_id = rollout.prompt.problem.id
        next_sample[problem_id] = max(next_sample.get(problem_id, 0), rollout.sample + 1)
    wanted = list[tuple[Prompt, range, Rollout | None]]()
    for prompt in prompts:
        first = next_sample.get(prompt.problem.id, 0)
        next_sample[prompt.problem.id] = first + num_samples
        wanted.append((prompt, range(first, first + num_samples), None))
    wanted += [(rollout.prompt, range(rollout.sample, rollout.sample + 1), rollout) for rollout in unfinished]
    return wanted


class ResponseSource(Protocol):
    """A source of responses to prompts: a sampler, or an object in front of several.

    Example: `rollouts = source.generate(prompts, Sampling(num_samples=8, max_response_tokens=256))`.
    """

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        unfinished: Sequence[Rollout] = (),
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        """Sample `num_samples` rollouts of each prompt, and resume the unfinished ones with the current weights.

        Returns the new rollouts in the order of prompts and samples, followed by the resumed ones in their order.
        on_finished: called with each rollout as soon as it is complete or is left unfinished (Finish.ABORT). The calls
        come one at a time, in any order of the rollouts.
        """
        ...


class Sampler(ResponseSource, Protocol):
    def load_weights(self, source: WeightSource) -> None:
        """Sample from these weights, and mark each new token with their version, a number of optimizer steps."""
        ...

    def close(self) -> None:
        """Release processes, memory and files. The sampler cannot be used afterwards."""
        ...
