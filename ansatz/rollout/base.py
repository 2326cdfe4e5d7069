"""What every rollout engine offers. A backend is `rollout/<name>.py` with `generate`, `load_weights` and `close`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ansatz.config.sampling import THOUGHT_END, SamplingOptions
from ansatz.types import Prompt, Rollout

if TYPE_CHECKING:  # it imports torch, and this file serves processes without it
    from ansatz.models.weights import WeightSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How responses are drawn.

    num_samples: responses a prompt. temperature: 0 is greedy (log-probs are then 0: the choice is certain).
    top_k: 0 is off. top_p: in (0, 1]. min_p: in [0, 1], 0 is off: tokens less likely than min_p times the likeliest are
    left out. min_response_tokens: so many tokens from the first on are no end tokens; stop strings end a response
    nevertheless. Log-probs are those of the distribution after all of these, so without the end tokens where they are
    impossible.
    max_call_tokens: a response that has drawn so many tokens in one call is given back unfinished (Finish.ABORT), to be
    gone on with in another; 0: off.
    stop: a response ends as soon as the text that it has drawn (special tokens included) holds one of these; its tokens
    stay as they were drawn. thinking_budget: 0 is off; where so many response tokens hold no thought_end, the tokens of
    `closing` are forced in and the answer goes on.
    seed, step: key the noise together with the problem's id, the sample's index and the token's position, so a response
    does not depend on what else is in the batch.
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
    def restricted(self) -> bool:
        """Whether tokens are drawn from less than the whole vocabulary."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0 or self.temperature == 0

    @property
    def watched(self) -> bool:
        """Whether more than end tokens and the limit shapes a response (see `rollout.response_rules`)."""
        return bool(self.stop) or self.thinking_budget > 0

    @classmethod
    def of(cls, options: SamplingOptions, *, seed: int, step: int = 0, max_call_tokens: int = 0) -> Sampling:
        """The sampling options of a recipe's section or of a command, with the keys of the noise.

        options.max_response_tokens must be a number above 0: only who knows the prompts can resolve 0.
        """
        values = {name: getattr(options, name) for name in SamplingOptions.model_fields}
        num_samples = values.pop("samples_per_prompt")
        return cls(num_samples=num_samples, **values, max_call_tokens=max_call_tokens, seed=seed, step=step)

    def greedy(self) -> Sampling:
        """One response a prompt, always the likeliest token."""
        return dataclasses.replace(
            self, num_samples=1, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, max_call_tokens=0
        )


Tool = Callable[[str], str | None]
"""A tool. It is told a response's text so far, which has come to a stop string, and says what to append to it; the
response then goes on. None: the response ends. It should depend on the text alone."""


def first_samples(prompts: Sequence[Prompt], num_samples: int, unfinished: Sequence[Rollout] = ()) -> list[int]:
    """Where each prompt's sample numbers start. A problem that comes twice in a call, or has unfinished rollouts, goes
    on counting, so that no two responses share their noise."""
    free: dict[str, int] = {}
    for rollout in unfinished:
        free[rollout.prompt.problem.id] = max(free.get(rollout.prompt.problem.id, 0), rollout.sample + 1)
    first: list[int] = []
    for prompt in prompts:
        first.append(free.get(prompt.problem.id, 0))
        free[prompt.problem.id] = first[-1] + num_samples
    return first


class Sampler(Protocol):
    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        unfinished: Sequence[Rollout] = (),
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        """num_samples rollouts of each prompt, in the order of the prompts and then of the samples; after these the
        unfinished ones of earlier calls, gone on with under the weights of now.

        on_finished is told of each rollout as soon as it ends, one at a time, in the order in which they end.
        """
        ...

    def load_weights(self, source: WeightSource) -> None:
        """Sample from these weights, and give their version to every token sampled from now on."""
        ...

    def close(self) -> None: ...
