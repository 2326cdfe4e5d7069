"""Sampling with the trainer's own model, by continuous batching: finished rows leave, waiting requests enter, and rows
whose environment takes its time wait outside the slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from ansatz.environments.base import EnvironmentSpec
from ansatz.environments.calls import EnvironmentCalls, environment_calls
from ansatz.environments.endings import Endings
from ansatz.errors import ConfigError, ModelError
from ansatz.models.load import Policy
from ansatz.models.weights import LiveWeights, WeightSource
from ansatz.rollout.base import Sampling, check_prompts
from ansatz.rollout.native.cache import PrefillCache, free_bytes, slots_that_fit
from ansatz.rollout.native.equal_rows import equal_rows
from ansatz.rollout.native.forward import Capture, ReferenceDecodeStep, capture_graph
from ansatz.rollout.native.parking import ParkingLot
from ansatz.rollout.native.requests import FinishedResponse, SampleRequest, build_requests
from ansatz.rollout.native.slots import Slots
from ansatz.rollout.native.step_choice import choose_decode_step
from ansatz.rollout.response_rules import ResponseRules, build_rules
from ansatz.rollout.sampling import kernels_on
from ansatz.special_tokens import special_tokens
from ansatz.types import Prompt, Rollout

DEFAULT_SLOTS = 256


class NativeSampler:
    """A `Sampler` over a `Policy`. It shares the trainer's weights, so loading weights only sets a version number.

    max_concurrent: decoding slots, at least the samples of one prompt. It bounds the cache and changes no result. On a
        GPU the number is lower if responses of maximum length would not fit in free memory; 0 means as many as fit.
    environment: answers the turns of responses; None: a response is one turn.
    capture: captures decode steps; on a GPU the default is CUDA graphs.
    Example: `NativeSampler(policy, max_concurrent=256).generate(prompts, sampling)`.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        max_concurrent: int,
        version: int = 0,
        environment: EnvironmentSpec | None = None,
        capture: Capture | None = None,
    ) -> None:
        self.policy = policy
        self.max_concurrent = max_concurrent
        self.version = version
        self.environment = environment
        self.on_tokens: Callable[[Sequence[int]], object] | None = None
        """Is called after every decode step with the tokens of the first row, so that a person can read along."""
        self._step = choose_decode_step(policy)
        self._token_bytes = token_bytes(policy) if policy.device.type == "cuda" else 0
        has_kernels = policy.device.type == "cuda" and kernels_on(policy.device) is not None
        can_capture = has_kernels and not isinstance(self._step, ReferenceDecodeStep)
        self._capture = capture or (capture_graph if can_capture else None)

    def load_weights(self, source: WeightSource) -> None:
        """Take the version. The trainer has updated the shared weights in place, so there is nothing to copy.

        Raise ModelError for any source except `LiveWeights` of this sampler's own model.
        """
        if not (isinstance(source, LiveWeights) and source.policy.model is self.policy.model):
            raise ModelError(
                "the native sampler shares the trainer's model and cannot load other weights. Give it LiveWeights of "
                "its own policy, or create a sampler for the other one."
            )
        self.version = source.version

    def close(self) -> None:
        """Do nothing: between calls the sampler holds no resources."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        unfinished: Sequence[Rollout] = (),
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        advice = "Lower rollout.max_response_tokens, or drop long prompts with rollout.max_prompt_tokens."
        check_prompts(prompts, sampling, limit=self.policy.max_context, whose="model's", advice=advice)
        begun = max((len(rollout.token_ids) for rollout in unfinished), default=0)
        if begun >= sampling.max_response_tokens:
            raise ConfigError(
                f"rollout.max_response_tokens = {sampling.max_response_tokens}: the checkpoint holds an unfinished "
                f"response of {begun} tokens. Set it to {begun + 1} or more."
            )
        requests = build_requests(prompts, sampling.num_samples, unfinished)
        if not requests:
            return []
        was_training = self.policy.model.training
        self.policy.model.eval()
        # equal_rows: on some CPUs, a row's bits would otherwise depend on the other rows of its batch.
        with equal_rows(self.policy), environment_calls(self.environment) as calls:
            endings = Endings(calls, on_finished)
            for response in self._decode(requests, sampling, calls):
                rollout, state = self._rollout(requests[response.request_index], response, sampling), response.state
                episode, open_turn = (state.episode, state.open_turn) if state else (None, "")
                endings.add((response.request_index, response.sample), rollout, episode=episode, open_turn=open_turn)
            rollouts = endings.wait()
        self.policy.model.train(was_training)
        return [rollouts[request.index, sample] for request in requests for sample in request.samples]

    @torch.inference_mode()
    def _decode(
        self, requests: Sequence[SampleRequest], sampling: Sampling, calls: EnvironmentCalls | None
    ) -> Iterator[FinishedResponse]:
        """Yield each response as soon as it ends. calls: answers the turns of responses; None without environment."""
        rules, max_slots = rules_for(self.policy, sampling, self.environment), self._max_slots(requests, sampling)
        waiting = list(requests)[::-1]  # `take_entering` takes them from the end
        slots = Slots(
            self.policy, self._step, sampling, waiting, max_slots=max_slots, rules=rules, capture=self._capture
        )
        # A row whose environment takes its time gives its slot to others (is parked) and comes back with the answer.
        parking = None if calls is None else ParkingLot(slots, calls)
        while waiting or slots.active or slots.parked:
            if parking:
                # It waits for an answer only if no row is active and no request can enter.
                yield from parking.return_rows(wait=not slots.active and (parking.full or not waiting))
            if (parking is None or not parking.full) and (entering := slots.take_entering(waiting)):
                slots.admit(entering)
            elif slots.active:
                slots.decode()
            if self.on_tokens is not None and slots.active:
                self.on_tokens(slots.token_SN[0, : int(slots.column["num_tokens"][0])].tolist())
            if parking:
                parking.answer_turns()
            yield from slots.take_finished()

    def _max_slots(self, requests: Sequence[SampleRequest], sampling: Sampling) -> int:
        """Return the number of slots. On a GPU, no more than fit in free memory.

        A slot needs room for a response and its row's share of a prompt, which a group stores once. If the cache
        holds latents (multi-head latent attention), every row stores the prompt itself.
        """
        if not self._token_bytes:
            return self.max_concurrent or DEFAULT_SLOTS
        shared = not self.policy.caches_latents
        prompt_share = max(-(-len(each.prompt.token_ids) // (each.num_rows if shared else 1)) for each in requests)
        span = sampling.max_response_tokens + prompt_share
        free = free_bytes(self.policy.device)
        return slots_that_fit(free, self._token_bytes, span, requested=self.max_concurrent)

    def _rollout(self, request: SampleRequest, response: FinishedResponse, sampling: Sampling) -> Rollout:
        partial, num_new = request.partial, len(response.token_ids) - request.num_tokens
        return Rollout(
            prompt=request.prompt,
            sample=response.sample,
            token_ids=response.token_ids,
            behavior_logps=response.behavior_logps,
            num_candidates=response.num_candidates if sampling.limits_candidates else (),
            min_response_tokens=sampling.min_response_tokens,
            sampled_mask=response.state.sampled_mask if response.state else (),
            text=self._text(response.token_ids),
            observations=response.state.observations(self._text) if response.state else (),
            finish=response.finish,
            versions=(*partial.token_versions, *(self.version,) * num_new) if partial else (),
            version_min=partial.version_min if partial else self.version,
            version_max=self.version,
            seed=sampling.seed,
        )

    def _text(self, token_ids: Sequence[int]) -> str:
        return special_tokens(self.policy.tokenizer).read(token_ids, self.policy.end_ids)


def rules_for(policy: Policy, sampling: Sampling, environment: EnvironmentSpec | None = None) -> ResponseRules | None:
    """Return the rules of a call. None if only end tokens and the length limit shape a response."""
    if not sampling.needs_rules and environment is None:
        return None
    return build_rules(sampling, policy.tokenizer, end_ids=policy.end_ids, environment=environment)


@torch.inference_mode()
def token_bytes(policy: Policy) -> int:
    """Count the bytes that the cache holds for one token, over all layers."""
    token_11 = torch.zeros(1, 1, dtype=torch.long, device=policy.device)
    prefill = PrefillCache()
    policy.hidden(token_11, token_11, cache=prefill, use_cache=True)
    return sum(stored.nbytes for pair in prefill.layers_kv for stored in pair)
