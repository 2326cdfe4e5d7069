"""The `Sampler` over a vLLM engine: rollouts survive the engine, weights are pushed with a tag and asked for by it.

An engine that dies is killed whole and started anew, is given the published weights, and goes on with the requests
that it has not answered. Rollouts that were finished stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ansatz.errors import ModelError, RolloutError
from ansatz.models.load import Policy
from ansatz.models.weights import LiveWeights, WeightSource
from ansatz.rollout.base import Sampling, Tool, first_samples
from ansatz.rollout.response_rules import ResponseRules
from ansatz.rollout.sampling import noise_key
from ansatz.rollout.vllm.engine import Engine, EngineLost
from ansatz.rollout.vllm.response import Answer, Request, Response, Seed, shared_params
from ansatz.rollout.vllm.weights import Publisher
from ansatz.types import Prompt, Rollout

_WHOLE = (1 << 63) - 1  # seeds are what a signed 64-bit integer holds, and not negative


class VllmSampler:
    """policy: its tokenizer, end tokens and, until `load_weights`, its weights. seeded: each response has noise of its
    own, keyed as the native sampler's is (its numbers are others). max_restarts: of the engine, in one call."""

    def __init__(
        self,
        policy: Policy,
        *,
        engine: Engine,
        publisher: Publisher,
        max_context: int,
        seeded: bool = True,
        max_restarts: int = 3,
        version: int = 0,
        observe: Tool | None = None,
    ) -> None:
        self.policy, self.version, self.observe = policy, version, observe
        self._engine, self._publisher = engine, publisher
        self._max_context, self._seeded, self._max_restarts = max_context, seeded, max_restarts
        self._published = 0
        self._tag = self._engine_tag = ""
        self._started = False

    def load_weights(self, source: WeightSource) -> None:
        """Publish the weights and push them; the engine has them when this returns. They need the policy's names."""
        self._publish(source)
        self._persist(lambda: None)

    def close(self) -> None:
        self._kill()
        self._publisher.close()

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        unfinished: Sequence[Rollout] = (),
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        if not prompts and not unfinished:
            return []
        self._check_room([*prompts, *(one.prompt for one in unfinished)], sampling)
        if not self._tag:
            self._publish(LiveWeights(policy=self.policy, version=self.version))
        responses = self._responses(prompts, sampling, unfinished)
        waiting: dict[int, Request] = {}
        finished: dict[int, Rollout] = {}

        def go_on(index: int) -> Request | None:
            response = responses[index]
            waiting.pop(index, None)
            if not response.done:
                waiting[index] = response.request()
                return waiting[index]
            finished[index] = response.rollout(text=self._text, version=self.version)
            if on_finished:
                on_finished(finished[index])
            return None

        def on_answer(index: int, answer: Answer) -> Request | None:
            responses[index].take(answer)
            return go_on(index)

        for index in range(len(responses)):
            go_on(index)
        self._persist(lambda: self._run(waiting, on_answer))
        return [finished[index] for index in range(len(responses))]

    def _run(self, waiting: dict[int, Request], on_answer: Callable[[int, Answer], Request | None]) -> None:
        self._engine.wake()
        self._engine.run(dict(waiting), on_answer)
        if (found := self._engine.weight_version()) != self._tag:
            raise RolloutError(
                f"rollouts of policy version {self.version} were asked of weights {self._tag}, and vLLM had {found}: "
                "something else updates it. Leave its control routes to this run."
            )
        self._engine.sleep()

    def _responses(
        self, prompts: Sequence[Prompt], sampling: Sampling, unfinished: Sequence[Rollout]
    ) -> list[Response]:
        tokenizer = self.policy.tokenizer
        watch = ResponseRules(
            sampling,
            end_ids=self.policy.end_ids,
            encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
            decode=tokenizer.decode,
            observe=self.observe,
        )
        params = shared_params(sampling, end_ids=self.policy.end_ids, vocab_size=self.policy.head.weight.shape[0])
        firsts = first_samples(prompts, sampling.num_samples, unfinished)
        wanted: list[tuple[Prompt, int, Rollout | None]] = [
            (prompt, sample, None)
            for prompt, first in zip(prompts, firsts, strict=True)
            for sample in range(first, first + sampling.num_samples)
        ]
        wanted += [(begun.prompt, begun.sample, begun) for begun in unfinished]
        return [
            Response(
                prompt,
                sample,
                sampling,
                watch=watch,
                params=params,
                seed=self._seed(prompt.problem.id, sample, sampling),
                begun=begun,
            )
            for prompt, sample, begun in wanted
        ]

    def _seed(self, problem_id: str, sample: int, sampling: Sampling) -> Seed:
        def seed(drawn: int) -> int | None:
            if not self._seeded or sampling.temperature == 0:
                return None
            return noise_key(sampling.seed, sampling.step, f"{problem_id}/{drawn}", sample) & _WHOLE

        return seed

    def _publish(self, source: WeightSource) -> None:
        self._published += 1
        self.version, self._tag = source.version, f"{source.version}-{self._published}"
        self._publisher.publish(source.tensors(), tag=self._tag)

    def _persist(self, work: Callable[[], None]) -> None:
        """The work, with a running engine that has the published weights; again with a new one where it is lost."""
        for restarts in range(self._max_restarts + 1):
            try:
                self._make_ready()
                return work()
            except EngineLost as error:
                self._kill()
                if restarts == self._max_restarts:
                    raise RolloutError(
                        f"vLLM was lost {restarts + 1} times in one call, the last time so: {error}. Its own lines "
                        "say more; rollout.engine.max_restarts bounds the tries."
                    ) from error
            except BaseException:
                self._kill()
                raise
        return None

    def _make_ready(self) -> None:
        if not self._started:
            self._engine.start()
            self._started, self._engine_tag = True, ""
        if self._engine_tag != self._tag:
            self._engine.wake()
            self._publisher.push(self._engine)
            self._engine_tag = self._tag

    def _kill(self) -> None:
        self._engine.kill()
        self._started = False

    def _text(self, token_ids: Sequence[int]) -> str:
        return self.policy.tokenizer.decode(token_ids, skip_special_tokens=True)

    def _check_room(self, prompts: Sequence[Prompt], sampling: Sampling) -> None:
        if empty := next((prompt for prompt in prompts if not prompt.token_ids), None):
            raise ModelError(f"the prompt of problem {empty.problem.id!r} has no tokens; its template needs some text.")
        longest = max(len(prompt.token_ids) for prompt in prompts)
        if longest + sampling.max_response_tokens > self._max_context:
            raise ModelError(
                f"a prompt of {longest} tokens plus rollout.max_response_tokens = {sampling.max_response_tokens} is "
                f"over the engine's context of {self._max_context}. Lower one of them, or raise "
                "rollout.engine.max_context where the model has more."
            )
