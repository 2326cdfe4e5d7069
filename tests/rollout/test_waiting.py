"""A tool that takes time delays no other response: in the native sampler and in every driver of vLLM."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake_vllm import FakeEngine, FakePublisher
from tiny_models import prompt, tiny_policy

from ansatz.environments.base import Environment, EnvironmentSpec, TurnSettings
from ansatz.models.load import Policy
from ansatz.rollout.base import Sampler, Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.rollout.vllm import VllmSampler, colocated, server
from ansatz.rollout.vllm.colocated import ColocatedEngine
from ansatz.rollout.vllm.engine import EngineSettings
from ansatz.rollout.vllm.server import ServerEngine
from ansatz.types import Rollout
from tools.families import END_ID, MAX_CONTEXT, VOCAB_SIZE

LONGEST_S = 60.0
"""How long a slow tool waits for the other responses. They need a moment, however busy the machine is."""
PROMPTS = [prompt(5 + index, 9, name="slow" if index == 0 else f"p{index}") for index in range(6)]
SAMPLING = Sampling(num_samples=3, max_response_tokens=24, seed=1)
SETTINGS = EngineSettings(model="m", dtype="float32", max_context=MAX_CONTEXT, max_concurrent=4, transfer="file")


class SlowCalls:
    """The calls of the tool for the problem "slow": they end when all other responses have."""

    def __init__(self) -> None:
        self.may_end, self._lock, self._in_flight, self.most_in_flight = threading.Event(), threading.Lock(), 0, 0

    def wait(self) -> None:
        with self._lock:
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        self.may_end.wait(LONGEST_S)
        with self._lock:
            self._in_flight -= 1


class Tool(Environment):
    """Answers the first two turns of every response."""

    slow_calls = SlowCalls()

    def __init__(self) -> None:
        self.left = 2

    def reset(self, problem: Any) -> None:
        self.is_slow = problem.id == "slow"

    def step(self, response: str) -> str | None:
        if self.is_slow:
            self.slow_calls.wait()
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
def test_a_tool_that_takes_time_delays_no_other_response(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = dataclasses.replace(tiny_policy(), end_ids=(END_ID, *range(5, 40, 4)))
    sampler = SAMPLERS[name](policy, monkeypatch)
    calls = SlowCalls()
    monkeypatch.setattr(Tool, "slow_calls", calls)
    finished: list[Rollout] = []

    def on_finished(rollout: Rollout) -> None:
        finished.append(rollout)
        if sum(not is_slow(each) for each in finished) == 15:
            calls.may_end.set()

    rollouts = sampler.generate(PROMPTS, SAMPLING, on_finished=on_finished)
    assert len(rollouts) == len(finished) == 18
    slow = [index for index, rollout in enumerate(finished) if is_slow(rollout) and rollout.sampled_mask]
    others = [index for index, rollout in enumerate(finished) if not is_slow(rollout)]
    assert slow
    assert min(slow) > max(others)  # they have one turn after the other, and no tool that takes time
    assert sum(bool(rollout.sampled_mask) for rollout in rollouts) > 9
    assert calls.most_in_flight == len(slow)  # the calls of the slow responses ran side by side


def is_slow(rollout: Rollout) -> bool:
    return rollout.prompt.problem.id == "slow"
