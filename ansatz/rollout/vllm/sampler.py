"""The `Sampler` over a vLLM engine.

An engine that dies is killed with all its processes and started again. It receives the published weights and continues
with the requests that were not answered; finished rollouts are kept. Every push of weights carries a tag, and every
call ends by asking the engine for its tag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ansatz.environments.base import EnvironmentSpec
from ansatz.environments.calls import EnvironmentCalls, environment_calls
from ansatz.environments.endings import Endings
from ansatz.errors import RolloutError
from ansatz.models.load import Policy
from ansatz.models.weights import LiveWeights, WeightSource
from ansatz.rollout.base import Sampling, check_prompts, wanted_samples
from ansatz.rollout.response_rules import build_rules
from ansatz.rollout.sampling import noise_key
from ansatz.rollout.vllm.engine import Engine, EngineLost
from ansatz.rollout.vllm.response import PendingResponse, Seed, shared_params
from ansatz.rollout.vllm.weights import Publisher
from ansatz.rollout.vllm.work import EngineWork
from ansatz.special_tokens import special_tokens
from ansatz.types import Prompt, Rollout

_ADVICE = (
    "Lower rollout.max_response_tokens or rollout.max_prompt_tokens, or raise rollout.engine.max_context if the model "
    "allows it."
)
_MAX_SEED = (1 << 63) - 1  # vLLM's seeds are signed 64-bit integers that are not negative


class VllmSampler:
    """policy: its tokenizer and end tokens are used, and its weights until `load_weights` is called.

    seeded: each response gets its own noise, with the key of the native sampler (but with other numbers).
    max_restarts: number of times that the engine is restarted within one call.
    """

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
        environment: EnvironmentSpec | None = None,
    ) -> None:
        self.policy, self.version, self.environment = policy, version, environment
        self._engine, self._publisher = engine, publisher
        self._max_context, self._seeded, self._max_restarts = max_context, seeded, max_restarts
        self._num_published = 0
        self._tag = self._engine_tag = ""
        self._started = False

    def load_weights(self, source: WeightSource) -> None:
        """Publish the weights and push them; the engine holds them when this returns. They need the policy's names."""
        self._publish(source)
        self._with_engine(lambda: None)

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
        given = [*prompts, *(rollout.prompt for rollout in unfinished)]
        check_prompts(given, sampling, limit=self._max_context, whose="engine's", advice=_ADVICE)
        if not self._tag:
            self._publish(LiveWeights(policy=self.policy, version=self.version))
        with environment_calls(self.environment) as calls:
            return self._generate(self._responses(prompts, sampling, unfinished), calls, on_finished)

    def _generate(
        self,
        responses: Sequence[PendingResponse],
        calls: EnvironmentCalls | None,
        on_finished: Callable[[Rollout], None] | None,
    ) -> list[Rollout]:
        endings = Endings(calls, on_finished)

        def finish(index: int) -> None:
            response = responses[index]
            rollout = response.rollout(text=self._text, version=self.version)
            endings.add(index, rollout, episode=response.state.episode, open_turn=response.state.open_turn)

        work = EngineWork(responses, calls, finish)
        self._with_engine(lambda: self._run(work))
        finished = endings.wait()
        return [finished[index] for index in range(len(responses))]

    def _run(self, work: EngineWork) -> None:
        work.start_over()
        self._engine.wake()
        self._engine.run(work)
        if (engine_tag := self._engine.weight_version()) != self._tag:
            raise RolloutError(
                f"rollouts of policy version {self.version} were requested from weights {self._tag}, but vLLM has "
                f"weights {engine_tag}: something else updates it. Make sure that only this run uses its control "
                "routes."
            )
        self._engine.sleep()

    def _responses(
        self, prompts: Sequence[Prompt], sampling: Sampling, unfinished: Sequence[Rollout]
    ) -> list[PendingResponse]:
        policy = self.policy
        rules = build_rules(sampling, policy.tokenizer, end_ids=policy.end_ids, environment=self.environment)
        params = shared_params(
            sampling,
            end_ids=policy.end_ids,
            vocab_size=policy.head.weight.shape[0],
            turn_ends=rules.turn_ends,
        )
        return [
            PendingResponse(
                prompt,
                sample,
                sampling,
                rules=rules,
                params=params,
                seed=self._seed(prompt.problem.id, sample, sampling),
                partial=partial,
            )
            for prompt, samples, partial in wanted_samples(prompts, sampling.num_samples, unfinished)
            for sample in samples
        ]

    def _seed(self, problem_id: str, sample: int, sampling: Sampling) -> Seed:
        def seed(num_tokens: int) -> int | None:
            if not self._seeded or sampling.temperature == 0:
                return None
            return noise_key(sampling.seed, sampling.step, f"{problem_id}/{num_tokens}", sample) & _MAX_SEED

        return seed

    def _publish(self, source: WeightSource) -> None:
        self._num_published += 1
        self.version, self._tag = source.version, f"{source.version}-{self._num_published}"
        self._publisher.publish(source.tensors(), tag=self._tag)

    def _with_engine(self, work: Callable[[], None]) -> None:
        """Do the work with a running engine and the published weights; repeat it with a new engine if one is lost.

        Raise RolloutError once the engine has been lost more often than max_restarts.
        """
        for restarts in range(self._max_restarts + 1):
            try:
                self._make_ready()
                return work()
            except EngineLost as error:
                self._kill()
                if restarts == self._max_restarts:
                    raise RolloutError(
                        f"vLLM was lost {restarts + 1} times in one call (rollout.engine.max_restarts = "
                        f"{self._max_restarts}). The last error: {error}. vLLM's own lines above say more."
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
        return special_tokens(self.policy.tokenizer).read(token_ids, self.policy.end_ids)
