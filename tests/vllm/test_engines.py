"""Real vLLM engines in both modes: log-probs, weight updates, killed processes, and close."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from engines import SAMPLING, alive, gap, long_prompts, policy_in, sampler_of, segments, with_other_weights
from tiny_models import some_prompts

from ansatz.errors import RolloutError
from ansatz.models.load import Policy
from ansatz.models.weights import LiveWeights
from ansatz.rollout.vllm import VllmSampler
from ansatz.types import Finish, Rollout

pytestmark = pytest.mark.vllm

TOLERANCE = 1e-4  # nats, with float32 on both sides
PROMPTS = some_prompts(4)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return policy_in(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def other(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return with_other_weights(policy, tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module", params=["colocated", "server"])
def sampler(policy: Policy, request: pytest.FixtureRequest) -> Iterator[VllmSampler]:
    vllm_sampler = sampler_of(policy, request.param)
    yield vllm_sampler
    vllm_sampler.close()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.7},
        {"top_k": 7},
        {"top_k": 20, "top_p": 0.8, "min_p": 0.01, "temperature": 0.7},
        {"min_response_tokens": 12},
        {"stop": ("t3",), "thinking_budget": 9, "thought_end": "t2", "closing": "t8 t20"},
    ],
    ids=str,
)
def test_log_probs_equal_the_trainers(sampler, policy, settings):
    sampler.load_weights(LiveWeights(policy=policy, version=0))
    sampling = dataclasses.replace(SAMPLING, **settings)
    rollouts = sampler.generate(PROMPTS + long_prompts(), sampling)
    assert sum(rollout.num_tokens for rollout in rollouts) > 100
    assert gap(policy, rollouts, temperature=sampling.temperature) < TOLERANCE
    if sampling.top_k:
        counts = {count for rollout in rollouts for count in rollout.num_candidates}
        assert 1 < max(counts) <= sampling.top_k
        assert sampling.top_p < 1.0 or counts == {sampling.top_k}
    if sampling.min_response_tokens:
        assert min(rollout.num_tokens for rollout in rollouts) > 12


def test_samples_of_a_group_differ_and_repeat_with_the_same_seed(sampler, policy):
    sampler.load_weights(LiveWeights(policy=policy, version=0))
    first, again = (sampler.generate(PROMPTS, SAMPLING) for _ in range(2))
    assert [rollout.token_ids for rollout in first] == [rollout.token_ids for rollout in again]
    assert len({rollout.token_ids for rollout in first}) == len(first)
    later = sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, step=2))
    assert not {rollout.token_ids for rollout in later} & {rollout.token_ids for rollout in first}


def test_after_an_update_rollouts_come_only_from_the_new_weights(sampler, policy, other):
    prompts = long_prompts()
    sampler.load_weights(LiveWeights(policy=policy, version=1))
    before = sampler.generate(prompts, SAMPLING)
    sampler.load_weights(LiveWeights(policy=other, version=2))
    after = sampler.generate(prompts, SAMPLING)
    assert {(rollout.version_min, rollout.version_max) for rollout in before} == {(1, 1)}
    assert {(rollout.version_min, rollout.version_max) for rollout in after} == {(2, 2)}
    assert gap(policy, before) < TOLERANCE
    assert gap(other, after) < TOLERANCE
    assert gap(policy, after) > 0.5


@pytest.mark.parametrize("victim", ["first", "rest"])
def test_processes_killed_during_sampling_lose_no_rollout(sampler, other, victim):
    """first: the server, or the engine process if there is no server. rest: all of its children."""
    sampler.load_weights(LiveWeights(policy=other, version=3))
    sampling = dataclasses.replace(SAMPLING, max_response_tokens=150)
    whole = sampler.generate(PROMPTS, sampling)
    before, segments_before = sampler._engine.processes, segments()
    finished: list[Rollout] = []

    def kill(rollout: Rollout) -> None:
        if not finished:
            oldest = min(before)
            for pid in [oldest] if victim == "first" else before - {oldest}:
                os.kill(pid, signal.SIGKILL)
        finished.append(rollout)

    rollouts = sampler.generate(PROMPTS, sampling, on_finished=kill)
    assert [rollout.token_ids for rollout in rollouts] == [rollout.token_ids for rollout in whole]
    assert sorted(map(id, finished)) == sorted(map(id, rollouts))
    assert {rollout.version_max for rollout in rollouts} == {3}
    assert gap(other, rollouts) < TOLERANCE
    assert not sampler._engine.processes & before
    assert _soon(lambda: not alive(before))
    assert len(segments()) <= len(segments_before)


@pytest.mark.parametrize("mode", ["colocated", "server"])
def test_an_engine_that_cannot_start_gives_the_reason(policy, mode):
    sampler = sampler_of(policy, mode, options={"max_model_len": 10**6})
    with pytest.raises(RolloutError, match=r"did not start|ended during its start") as raised:
        sampler.generate(PROMPTS, SAMPLING)
    assert mode == "colocated" or "max_model_len" in str(raised.value)
    sampler.close()


@pytest.mark.parametrize("mode", ["colocated", "server"])
def test_close_leaves_no_process_no_shared_memory_and_no_file(policy, mode):
    segments_before = segments()
    sampler = sampler_of(policy, mode)
    (rollout, *_) = sampler.generate(PROMPTS[:1], SAMPLING.greedy())
    assert rollout.finish in (Finish.STOP, Finish.LENGTH)
    processes = sampler._engine.processes
    assert len(alive(processes)) >= 2
    sampler.close()
    assert _soon(lambda: not alive(processes))
    assert segments() <= segments_before


def _soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()
