"""A tool that takes a second delays no other response: in the native sampler and in every driver of vLLM."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_models import prompt, tiny_policy

from ansatz.environments.base import Environment, EnvironmentSpec, TurnSettings
from ansatz.models.load import Policy
from ansatz.rollout.base import Sampler, Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.rollout.vllm import VllmSampler, colocated, server
from ansatz.rollout.vllm.colocated import ColocatedEngine
from ansatz.rollout.vllm.engine import EngineSettings
from ansatz.rollout.vllm.fake import FakeEngine, FakePublisher
from ansatz.rollout.vllm.server import ServerEngine
from ansatz.types import Rollout
from tools.families import END_ID, MAX_CONTEXT, VOCAB_SIZE

TOOL_S = 1.0
PROMPTS = [prompt(5 + index, 9, name="slow" if index == 0 else f"p{index}") for index in range(6)]
SAMPLING = Sampling(num_samples=3, max_response_tokens=24, seed=1)
SETTINGS = EngineSettings(model="m", dtype="float32", max_context=MAX_CONTEXT, max_concurrent=4, transfer="file")


class Tool(Environment):
    """Answers the first two turns of every response; for the problem "slow" it takes a second each time."""

    def __init__(self) -> None:
        self.left = 2

    def reset(self, problem: Any) -> None:
        self.is_slow = problem.id == "slow"

    def step(self, response: str) -> str | None:
        if self.is_slow:
            time.sleep(TOOL_S)
        self.left -= 1
        return "t7 t8" if self.left >= 0 else None


ENVIRONMENT = EnvironmentSpec(name="tool", make=Tool, settings=TurnSettings(turns=3), sample=Tool())


class StandIn:
    """What the drivers need of vLLM, without it. Outputs are those of `FakeEngine`, a moment after the request."""

    def __init__(self) -> None:
        self._fake = FakeEngine(vocab_size=VOCAB_SIZE)
        self._requests: list[tuple[str, Any]] = []

    def complete(self, request: Any) -> Any:
        time.sleep(0.01)
        return self._fake._output(request)

    def add_request(self, name: str, tokens: Any, params: Any) -> None:
        request = SimpleNamespace(token_ids=tuple(tokens["prompt_token_ids"]), params=params)
        self._requests.append((name, request))

    def step(self) -> list[Any]:
        time.sleep(0.005)
        name, request = self._requests.pop(0)
        output = self._fake._output(request)
        logprobs = [{token: SimpleNamespace(logprob=-1.0)} for token in output.token_ids]
        sampled = SimpleNamespace(token_ids=output.token_ids, logprobs=logprobs)
        return [SimpleNamespace(finished=True, request_id=name, outputs=[sampled])]


class Colocated(ColocatedEngine):
    def start(self) -> None:
        self._llm = SimpleNamespace(llm_engine=StandIn())

    _params = staticmethod(lambda request: request.params)


class Server(ServerEngine):
    def start(self) -> None:
        self._complete = StandIn().complete


def on_vllm(make: Callable[[], Any]) -> Callable[[Policy, pytest.MonkeyPatch], Sampler]:
    def sampler(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> Sampler:
        for module in (colocated, server):
            monkeypatch.setattr(module, "vllm_platform", lambda: SimpleNamespace(is_cpu=lambda: True))
        engine = make()
        tags = [""]
        for name, method in {
            "finish_weight_update": lambda tag: tags.append(tag),
            "weight_version": lambda: tags[-1],
            "kill": lambda: None,
        }.items():
            monkeypatch.setattr(engine, name, method)
        return VllmSampler(
            policy, engine=engine, publisher=FakePublisher(), max_context=MAX_CONTEXT, environment=ENVIRONMENT
        )

    return sampler


SAMPLERS = {
    "native": lambda policy, monkeypatch: NativeSampler(policy, max_concurrent=6, environment=ENVIRONMENT),
    "vllm, without its drivers": on_vllm(lambda: FakeEngine(vocab_size=VOCAB_SIZE)),
    "vllm, colocated": on_vllm(lambda: Colocated(SETTINGS)),
    "vllm, server": on_vllm(lambda: Server(SETTINGS)),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_tool_that_takes_a_second_delays_no_other_response(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = dataclasses.replace(tiny_policy(), end_ids=(END_ID, *range(5, 40, 4)))
    sampler = SAMPLERS[name](policy, monkeypatch)
    sampler.generate(PROMPTS[1:2], SAMPLING)  # starts what is slow to start
    finished: list[tuple[float, Rollout]] = []
    start = time.monotonic()
    rollouts = sampler.generate(
        PROMPTS, SAMPLING, on_finished=lambda rollout: finished.append((time.monotonic() - start, rollout))
    )
    assert len(rollouts) == len(finished) == 18
    slow = [at for at, rollout in finished if rollout.prompt.problem.id == "slow" and rollout.sampled_mask]
    others = [at for at, rollout in finished if rollout.prompt.problem.id != "slow"]
    assert slow
    assert min(slow) >= TOOL_S
    assert max(others) < TOOL_S  # they have one turn after the other, and no tool that takes time
    assert sum(bool(rollout.sampled_mask) for rollout in rollouts) > 9
    assert time.monotonic() - start < 3 * TOOL_S + 1  # the calls of the three slow responses ran side by side
