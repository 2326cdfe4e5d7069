"""Sampling with the trainer's own model: whole groups at once, finished rows leave, waiting ones enter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ansatz.errors import ModelError
from ansatz.models.load import Policy
from ansatz.models.weights import LiveWeights, WeightSource
from ansatz.rollout.base import Sampling, Tool, first_samples
from ansatz.rollout.native.cache import free_bytes, slots_that_fit, token_bytes
from ansatz.rollout.native.forward import FastDecodeStep, decode_step
from ansatz.rollout.native.graphs import GraphedStep, Record, record_graph
from ansatz.rollout.native.slots import FinishedResponse, PartialResponse, Request, decode, rules_for
from ansatz.types import Prompt, Rollout

DEFAULT_SLOTS = 256


class NativeSampler:
    """A `Sampler` over a `Policy`. It holds no copy of the weights: a weight sync is a version number.

    max_concurrent: slots, at least the samples of one prompt; bounds the cache and changes no number. On a GPU there
    are fewer where a cache of longest responses would not fit in free memory, and 0 is as many as do. observe: a tool;
    every decoding row waits while it is asked. record: how decode steps are recorded, CUDA graphs on a GPU.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        max_concurrent: int,
        version: int = 0,
        observe: Tool | None = None,
        record: Record | None = None,
    ) -> None:
        self.policy = policy
        self.max_concurrent = max_concurrent
        self.version = version
        self.observe = observe
        self._step = decode_step(policy)
        on_gpu = policy.device.type == "cuda"
        self._token_bytes = token_bytes(policy) if on_gpu else 0
        self._record = record or (record_graph if on_gpu and isinstance(self._step, FastDecodeStep) else None)

    def load_weights(self, source: WeightSource) -> None:
        """Take the version. The trainer has updated the shared weights in place, so there is nothing to copy.

        Raises ModelError for any source but `LiveWeights` of this sampler's own model.
        """
        if not (isinstance(source, LiveWeights) and source.policy.model is self.policy.model):
            raise ModelError(
                "the native sampler shares the trainer's model and cannot load other weights. Give it LiveWeights of "
                "its own policy, or create a sampler for the other one."
            )
        self.version = source.version

    def close(self) -> None:
        """Nothing of its own is held between calls."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        unfinished: Sequence[Rollout] = (),
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        self._check(prompts, sampling)
        requests = _requests(prompts, sampling.num_samples, unfinished)
        sources = [*prompts, *unfinished]
        out: dict[tuple[int, int], Rollout] = {}
        if not requests:
            return []
        was_training = self.policy.model.training
        self.policy.model.eval()
        watch = rules_for(self.policy, sampling, self.observe)
        step = GraphedStep(self._step, self._record) if self._record else self._step
        slots = self._slots(requests, sampling)
        for row in decode(self.policy, step, sampling, requests, max_slots=slots, watch=watch):
            rollout = self._rollout(sources[row.index], row, sampling)
            out[row.index, row.sample] = rollout
            if on_finished:
                on_finished(rollout)
        self.policy.model.train(was_training)
        return [out[request.index, sample] for request in requests for sample in request.samples]

    def _slots(self, requests: Sequence[Request], sampling: Sampling) -> int:
        if not self._token_bytes:
            return self.max_concurrent or DEFAULT_SLOTS
        span = sampling.max_response_tokens + max(-(-len(one.prompt_ids) // one.rows) for one in requests)
        free = free_bytes(self.policy.device)
        return slots_that_fit(free, self._token_bytes, span, asked=self.max_concurrent)

    def _check(self, prompts: Sequence[Prompt], sampling: Sampling) -> None:
        limit = self.policy.max_context
        for prompt in prompts:
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

    def _rollout(self, source: Prompt | Rollout, row: FinishedResponse, sampling: Sampling) -> Rollout:
        prompt, begun = (source.prompt, source) if isinstance(source, Rollout) else (source, None)
        new = len(row.token_ids) - (begun.num_tokens if begun else 0)
        return Rollout(
            prompt=prompt,
            sample=row.sample,
            token_ids=row.token_ids,
            behavior_logps=row.logps,
            num_candidates=row.sizes if sampling.restricted else (),
            min_response_tokens=sampling.min_response_tokens,
            sampled_mask=row.sampled_mask,
            text=self.policy.tokenizer.decode(row.token_ids, skip_special_tokens=True),
            finish=row.finish,
            versions=(*begun.token_versions, *(self.version,) * new) if begun else (),
            version_min=begun.version_min if begun else self.version,
            version_max=self.version,
            seed=sampling.seed,
        )


def _requests(prompts: Sequence[Prompt], num_samples: int, unfinished: Sequence[Rollout]) -> list[Request]:
    """One a prompt and one an unfinished rollout."""
    firsts = first_samples(prompts, num_samples, unfinished)
    new = [
        Request(
            index=index,
            problem_id=prompt.problem.id,
            prompt_ids=prompt.token_ids,
            samples=range(first, first + num_samples),
        )
        for index, (prompt, first) in enumerate(zip(prompts, firsts, strict=True))
    ]
    begun = [
        Request(
            index=index,
            problem_id=rollout.prompt.problem.id,
            prompt_ids=rollout.prompt.token_ids,
            samples=range(rollout.sample, rollout.sample + 1),
            begun=PartialResponse(
                token_ids=rollout.token_ids,
                logps=rollout.behavior_logps,
                sizes=rollout.num_candidates or (0,) * rollout.num_tokens,
            ),
        )
        for index, rollout in enumerate(unfinished, len(prompts))
    ]
    return new + begun
