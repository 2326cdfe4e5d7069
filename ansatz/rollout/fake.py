"""A sampler without a model, for tests of what stands above: responses are a function of prompt and sample.

Tokens are the UTF-8 bytes of the response, then END.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ansatz.rollout.base import Sampling
from ansatz.types import Finish, Prompt, Rollout

END = 256


class FakeSampler:
    """respond(prompt, sample) is the text, cut at max_response_tokens; greedy sampling asks for it as sample 0. A text
    shorter than min_response_tokens is filled up with spaces.

    Every log-prob is -1.0, 0.0 when greedy. Keeps the weights that it was given in `weights`.
    """

    def __init__(self, respond: Callable[[Prompt, int], str], *, version: int = 0) -> None:
        self._respond = respond
        self.version = version
        self.weights: Any = None
        self.closed = False

    def load_weights(self, weights: Any, *, version: int) -> None:
        self.weights, self.version = weights, version

    def close(self) -> None:
        self.closed = True

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, *, on_finished: Callable[[Rollout], None] | None = None
    ) -> list[Rollout]:
        drawn: Counter[str] = Counter()  # a problem that comes twice goes on counting its samples
        out: list[Rollout] = []
        for prompt in prompts:
            for _ in range(sampling.num_samples):
                out.append(self._rollout(prompt, drawn[prompt.problem.id], sampling))
                drawn[prompt.problem.id] += 1
                if on_finished:
                    on_finished(out[-1])
        return out

    def _rollout(self, prompt: Prompt, sample: int, sampling: Sampling) -> Rollout:
        greedy = sampling.temperature == 0
        script = self._respond(prompt, 0 if greedy else sample).encode()
        whole = (*script.ljust(sampling.min_response_tokens), END)
        token_ids = whole[: sampling.max_response_tokens]
        return Rollout(
            prompt=prompt,
            sample=sample,
            token_ids=token_ids,
            behavior_logps=(0.0 if greedy else -1.0,) * len(token_ids),
            text=bytes(token for token in token_ids if token != END).decode(errors="ignore"),
            finish=Finish.STOP if len(token_ids) == len(whole) else Finish.LENGTH,
            version_min=self.version,
            version_max=self.version,
            seed=sampling.seed,
            min_response_tokens=sampling.min_response_tokens,
        )
