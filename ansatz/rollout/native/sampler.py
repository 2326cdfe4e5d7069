"""Sampling with the trainer's own model: whole groups at once, finished rows leave, waiting ones enter.

On a CPU a small model's requests are dealt to as many batches as there are threads, which decode side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ansatz.errors import ModelError
from ansatz.models.load import Policy
from ansatz.models.threads import SMALL_MODEL, num_threads, one_thread, side_by_side
from ansatz.rollout.base import Observe, Sampling, first_samples
from ansatz.rollout.native.forward import decode_step
from ansatz.rollout.native.slots import Request, Slots
from ansatz.rollout.watch import Watch
from ansatz.types import Prompt, Rollout


class NativeSampler:
    """A `Sampler` over a `Policy`. It holds no copy of the weights: a weight sync is a version number.

    max_concurrent: slots, at least the samples of one prompt; bounds the cache and changes no number. observe: a tool;
    every decoding row waits while it is asked.
    """

    def __init__(
        self, policy: Policy, *, max_concurrent: int, version: int = 0, observe: Observe | None = None
    ) -> None:
        self.policy = policy
        self._step = decode_step(policy)
        self.max_concurrent = max_concurrent
        self.version = version
        self.observe = observe

    def load_weights(self, weights: Any, *, version: int) -> None:
        """The trainer updates these very weights in place, so `weights` must be the policy's own model."""
        if weights is not self.policy.model:
            raise ModelError("the native sampler shares the trainer's model; it was given other weights")
        self.version = version

    def close(self) -> None:
        """Nothing is held between calls."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        unfinished: Sequence[Rollout] = (),
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        requests = _requests(prompts, sampling.num_samples, unfinished)
        self._check(requests, sampling)
        small = self.policy.num_parameters < SMALL_MODEL
        width = min(num_threads(self.policy.device) if small else 1, len(requests))
        lock, out = threading.Lock(), dict[tuple[int, int], Rollout]()

        def ended(request: Request, rollout: Rollout) -> None:
            with lock:
                out[request.index, rollout.sample] = rollout
                if on_finished:
                    on_finished(rollout)

        def decode(dealt: Sequence[Request]) -> None:
            self._decode(dealt, sampling, max_slots=self.max_concurrent // width, ended=ended)

        was_training = self.policy.model.training
        self.policy.model.eval()
        with one_thread(small):
            for _ in side_by_side(decode, [requests[first::width] for first in range(width)], self.policy.device):
                pass
        self.policy.model.train(was_training)
        return [out[request.index, sample] for request in requests for sample in request.samples]

    @torch.inference_mode()
    def _decode(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        max_slots: int,
        ended: Callable[[Request, Rollout], None],
    ) -> None:
        """One batch of slots, from its first prefill to its last token."""
        waiting = list(requests)[::-1]
        widest, rows = max(request.rows for request in waiting), sum(request.rows for request in waiting)
        slots = Slots(
            self.policy,
            self._step,
            sampling,
            count=min(max(max_slots, widest), rows),
            watch=self._watch(sampling),
            version=self.version,
        )
        while waiting or slots.active:
            if entering := slots.room_for(waiting):
                slots.admit(entering)
            else:
                slots.decode()
            for request, rollout in slots.take_finished():
                ended(request, rollout)

    def _check(self, requests: Sequence[Request], sampling: Sampling) -> None:
        limit = self.policy.max_context
        for request in requests:
            prompt = request.prompt
            if not prompt.token_ids:
                raise ModelError(
                    f"the prompt of problem {prompt.problem.id!r} has no tokens; its template needs some text."
                )
            if len(prompt.token_ids) + sampling.max_response_tokens > limit:
                raise ModelError(
                    f"a prompt of {len(prompt.token_ids)} tokens plus rollout.max_response_tokens = "
                    f"{sampling.max_response_tokens} is over the model's context of {limit}. Lower one of them or "
                    "leave the prompt out (rollout.max_prompt_tokens)."
                )

    def _watch(self, sampling: Sampling) -> Watch | None:
        if not sampling.watched:
            return None
        tokenizer = self.policy.tokenizer
        return Watch(
            sampling,
            end_ids=self.policy.end_ids,
            encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
            decode=tokenizer.decode,
            observe=self.observe,
        )


def _requests(prompts: Sequence[Prompt], num_samples: int, unfinished: Sequence[Rollout]) -> list[Request]:
    """One a prompt and one an unfinished rollout."""
    firsts = first_samples(prompts, num_samples, unfinished)
    new = [
        Request(index=index, prompt=prompt, samples=range(first, first + num_samples))
        for index, (prompt, first) in enumerate(zip(prompts, firsts, strict=True))
    ]
    begun = [
        Request(index=index, prompt=rollout.prompt, samples=range(rollout.sample, rollout.sample + 1), begun=rollout)
        for index, rollout in enumerate(unfinished, len(prompts))
    ]
    return new + begun
