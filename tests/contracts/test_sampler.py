"""The contract of all samplers, the fake included."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_sampler import END, FakeSampler, FakeWeights
from fake_vllm import FakeEngine, FakePublisher
from scripted import scripted
from tiny_models import prompt, some_prompts, tiny_folder, tiny_policy

from ansatz.environments.base import EnvironmentSpec
from ansatz.models.load import Policy, load_policy
from ansatz.models.weights import LiveWeights, WeightSource
from ansatz.rollout.base import Sampler, Sampling
from ansatz.rollout.engines import engine_of
from ansatz.rollout.native import NativeSampler
from ansatz.rollout.vllm import VllmSampler
from ansatz.types import Finish, Prompt, Rollout
from tools.families import END_ID, MAX_CONTEXT, VOCAB_SIZE

PROMPTS = some_prompts(5)
SAMPLING = Sampling(num_samples=4, max_response_tokens=12, seed=3, step=2)
POLICY = tiny_policy()


WeightsAt = Callable[[int], WeightSource]
"""The same weights as those of version N."""
Subject = tuple[Sampler, WeightsAt, set[int]]
"""A sampler at version 0, what it loads weights from, and its end tokens."""


def live(policy: Policy) -> WeightsAt:
    return lambda version: LiveWeights(policy=policy, version=version)


def native(environment: EnvironmentSpec | None = None) -> Subject:
    policy = dataclasses.replace(POLICY, end_ids=(END_ID, 5, 9, 13))
    return NativeSampler(policy, max_concurrent=8, environment=environment), live(policy), set(policy.end_ids)


def fake(environment: EnvironmentSpec | None = None) -> Subject:
    def respond(prompt: Prompt, sample: int) -> str:
        return f"{prompt.problem.id}: " + "x" * (3 * sample)

    return FakeSampler(respond, environment=environment), lambda version: FakeWeights(version=version), {END}


def vllm_without_vllm(environment: EnvironmentSpec | None = None) -> Subject:
    policy = dataclasses.replace(POLICY, end_ids=(END_ID, 5, 9, 13))
    engine, publisher = FakeEngine(vocab_size=VOCAB_SIZE), FakePublisher()
    sampler = VllmSampler(policy, engine=engine, publisher=publisher, max_context=MAX_CONTEXT, environment=environment)
    return sampler, live(policy), set(policy.end_ids)


@functools.cache
def running_vllm() -> VllmSampler:
    """One engine for all tests, because a start takes half a minute."""
    folder = Path(tempfile.mkdtemp())
    policy = load_policy(tiny_folder(folder, head_dim=32))
    sampler = engine_of({"name": "vllm", "max_concurrent": 8})(dataclasses.replace(policy, end_ids=(END_ID, 5, 9, 13)))
    assert isinstance(sampler, VllmSampler)
    atexit.register(sampler.close)
    return sampler


def vllm(environment: EnvironmentSpec | None = None) -> Subject:
    sampler = running_vllm()
    sampler.environment = environment
    weights_at = live(sampler.policy)
    sampler.load_weights(weights_at(0))
    return sampler, weights_at, set(sampler.policy.end_ids)


Make = Callable[..., Subject]
STOP = ("t3", "xx")  # the first occurs in responses of models, the second in those of the fake
THINKING = {"thinking_budget": 5, "thought_end": "t2", "closing": "t8 t20"}
SAMPLERS = pytest.mark.parametrize(
    "make", [native, fake, vllm_without_vllm, pytest.param(vllm, marks=pytest.mark.vllm)]
)


def keys(rollouts: list[Rollout]) -> list[tuple[str, int]]:
    return [(rollout.prompt.problem.id, rollout.sample) for rollout in rollouts]


def tokens_by_key(rollouts: list[Rollout]) -> dict[tuple[str, int], tuple[int, ...]]:
    return dict(zip(keys(rollouts), (rollout.token_ids for rollout in rollouts), strict=True))


def forced_logps(rollout: Rollout) -> set[float]:
    return {
        logp for logp, is_sampled in zip(rollout.behavior_logps, rollout.sampled_mask, strict=True) if not is_sampled
    }


@SAMPLERS
def test_rollouts_are_returned_in_the_order_of_prompts_and_samples(make: Make) -> None:
    rollouts = make()[0].generate(PROMPTS, SAMPLING)
    assert keys(rollouts) == [(prompt.problem.id, sample) for prompt in PROMPTS for sample in range(4)]
    assert [rollout.prompt for rollout in rollouts] == [prompt for prompt in PROMPTS for _ in range(4)]
    assert {rollout.seed for rollout in rollouts} == {3}


@SAMPLERS
def test_each_rollout_ends_with_an_end_token_or_at_the_limit(make: Make) -> None:
    sampler, _, end_ids = make()
    rollouts = sampler.generate(PROMPTS, SAMPLING)
    assert {rollout.finish for rollout in rollouts} == {Finish.STOP, Finish.LENGTH}
    for rollout in rollouts:
        assert 1 <= rollout.num_tokens <= 12
        assert not end_ids.intersection(rollout.token_ids[:-1])
        assert (rollout.token_ids[-1] in end_ids) == (rollout.finish is Finish.STOP)
        assert rollout.finish is Finish.STOP or rollout.num_tokens == 12


@SAMPLERS
def test_end_tokens_are_masked_out_for_the_first_tokens(make: Make) -> None:
    sampler, _, end_ids = make()
    rollouts = sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, min_response_tokens=9))
    assert {rollout.min_response_tokens for rollout in rollouts} == {9}
    assert not {token for rollout in rollouts for token in rollout.token_ids[:9]} & end_ids
    assert {rollout.finish for rollout in rollouts} == {Finish.STOP, Finish.LENGTH}
    assert all(rollout.num_tokens > 9 for rollout in rollouts)


@SAMPLERS
def test_a_stop_string_ends_a_response_and_changes_no_token(make: Make) -> None:
    sampler, _, end_ids = make()
    stopped = 0
    plain = sampler.generate(PROMPTS, SAMPLING)
    rollouts = sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, stop=STOP))
    for rollout, whole in zip(rollouts, plain, strict=True):
        assert rollout.token_ids == whole.token_ids[: rollout.num_tokens]
        assert rollout.sampled_mask == ()
        has_stop = any(stop in rollout.text for stop in STOP)
        assert has_stop == any(stop in whole.text for stop in STOP)
        assert rollout.finish is (Finish.STOP if has_stop or rollout.token_ids[-1] in end_ids else Finish.LENGTH)
        stopped += rollout.num_tokens < whole.num_tokens
    assert stopped > 3


@SAMPLERS
def test_an_open_thought_is_closed_at_its_budget_by_forced_tokens(make: Make) -> None:
    sampler, _, end_ids = make()
    rollouts = sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, max_response_tokens=20, **THINKING))
    forced = [rollout for rollout in rollouts if rollout.sampled_mask]
    assert len(forced) > 2
    for rollout in forced:
        assert rollout.sampled_mask[:6] == (*[True] * 5, False)
        assert forced_logps(rollout) == {0.0}
        assert all(rollout.sampled_mask[rollout.sampled_mask.count(False) + 5 :])
        assert rollout.finish is (Finish.BUDGET if rollout.token_ids[-1] in end_ids else Finish.LENGTH)
        assert "t8 t20" in rollout.text
    assert len({rollout.token_ids[5 : 5 + rollout.sampled_mask.count(False)] for rollout in forced}) == 1


@SAMPLERS
@pytest.mark.parametrize("delay_s", [None, 0.0])
def test_an_environment_answers_each_turn_and_its_tokens_are_forced(make: Make, delay_s: float | None) -> None:
    turns: list[str] = []

    def answer(turn: str) -> str | None:
        turns.append(turn)
        return "t7 t7" if any(stop in turn for stop in STOP) else None

    sampler, _, _ = make(scripted(answer, turn_ends=STOP, turns=2, delay_s=delay_s))
    rollouts = sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, max_response_tokens=30))
    assert turns
    observed = [rollout for rollout in rollouts if rollout.sampled_mask]
    assert len(observed) > 3
    for rollout in observed:
        assert "t7 t7" in rollout.text
        assert "t7 t7" in "".join(rollout.text[start:end] for start, end in rollout.observations)
        assert len(rollout.said) == len(rollout.text) - sum(end - start - 1 for start, end in rollout.observations)
        assert 0 < rollout.sampled_mask.count(False) <= 5
        assert forced_logps(rollout) == {0.0}
    assert any(
        rollout.sampled_mask[-1] and rollout.num_tokens > rollout.sampled_mask.index(False) + 5 for rollout in observed
    )


@SAMPLERS
@pytest.mark.parametrize("delay_s", [None, 0.0])
def test_the_environment_rewards_every_response_that_has_ended(make: Make, delay_s: float | None) -> None:
    def answer(turn: str) -> str | None:
        return "t7 t7" if any(stop in turn for stop in STOP) else None

    environment = scripted(answer, turn_ends=STOP, turns=2, delay_s=delay_s, gives=lambda env: len(env.turns) / 4)
    sampler, weights_at, _ = make(environment)
    reported: list[Rollout] = []
    sampling = dataclasses.replace(SAMPLING, max_response_tokens=30)
    rollouts = sampler.generate(PROMPTS, sampling, on_finished=reported.append)
    assert {id(rollout) for rollout in reported} == {id(rollout) for rollout in rollouts}
    values = [rollout.environment_reward.value for rollout in rollouts if rollout.environment_reward is not None]
    assert len(values) == len(rollouts)
    assert set(values) <= {0.0, 0.25, 0.5}
    assert {0.25, 0.5} <= set(values)
    parts, _ = resumed_to_the_end(sampler, weights_at, dataclasses.replace(sampling, max_call_tokens=5))
    assert all(rollout.environment_reward is not None for rollout in parts)
    cut = sampler.generate(PROMPTS, dataclasses.replace(sampling, max_call_tokens=1))
    unfinished = [rollout for rollout in cut if rollout.finish is Finish.ABORT]
    assert unfinished
    assert {rollout.environment_reward for rollout in unfinished} == {None}


@SAMPLERS
def test_log_probs_are_not_positive_and_zero_when_greedy(make: Make) -> None:
    sampler, _, _ = make()
    assert all(logp <= 0 for rollout in sampler.generate(PROMPTS, SAMPLING) for logp in rollout.behavior_logps)
    greedy = sampler.generate(PROMPTS, SAMPLING.greedy())
    assert keys(greedy) == [(prompt.problem.id, 0) for prompt in PROMPTS]
    assert {logp for rollout in greedy for logp in rollout.behavior_logps} == {0.0}


@SAMPLERS
def test_greedy_gives_every_sample_of_a_prompt_the_same_response(make: Make) -> None:
    rollouts = make()[0].generate(PROMPTS, dataclasses.replace(SAMPLING, temperature=0.0))
    assert len({(rollout.prompt.problem.id, rollout.token_ids) for rollout in rollouts}) == len(PROMPTS)


@SAMPLERS
def test_the_same_call_gives_the_same_rollouts_in_any_order_of_prompts(make: Make) -> None:
    sampler, _, _ = make()
    first, again = sampler.generate(PROMPTS, SAMPLING), sampler.generate(PROMPTS, SAMPLING)
    assert first == again
    backwards = sampler.generate(PROMPTS[::-1], SAMPLING)
    assert tokens_by_key(backwards) == tokens_by_key(first)


@SAMPLERS
def test_on_finished_is_called_once_with_every_rollout(make: Make) -> None:
    finished: list[Rollout] = []
    rollouts = make()[0].generate(PROMPTS, SAMPLING, on_finished=finished.append)
    assert len(finished) == len(rollouts)
    assert {id(rollout) for rollout in finished} == {id(rollout) for rollout in rollouts}


@SAMPLERS
def test_the_sample_index_continues_if_a_problem_occurs_again(make: Make) -> None:
    again = [PROMPTS[0], PROMPTS[1], PROMPTS[0]]
    assert [rollout.sample for rollout in make()[0].generate(again, SAMPLING)] == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7]


@SAMPLERS
def test_rollouts_have_the_version_of_the_loaded_weights(make: Make) -> None:
    sampler, weights_at, _ = make()
    before = sampler.generate(PROMPTS[:1], SAMPLING)
    sampler.load_weights(weights_at(9))
    after = sampler.generate(PROMPTS[:1], SAMPLING)
    assert {(rollout.version_min, rollout.version_max) for rollout in before} == {(0, 0)}
    assert {(rollout.version_min, rollout.version_max) for rollout in after} == {(9, 9)}


def resumed_to_the_end(sampler: Sampler, weights_at: WeightsAt, sampling: Sampling) -> tuple[list[Rollout], int]:
    """Rollouts that are resumed until all have ended, and the number of calls. Each call has newer weights."""
    rollouts, calls = sampler.generate(PROMPTS, sampling), 1
    while unfinished := [rollout for rollout in rollouts if rollout.finish is Finish.ABORT]:
        sampler.load_weights(weights_at(calls))
        resumed = iter(sampler.generate([], sampling, unfinished=unfinished))
        rollouts = [next(resumed) if rollout.finish is Finish.ABORT else rollout for rollout in rollouts]
        calls += 1
    return rollouts, calls


# Not vLLM: its noise has no key per token, so a resumed response gets other tokens.
@pytest.mark.parametrize("make", [native, fake])
@pytest.mark.parametrize("settings", [{}, {"stop": STOP}, THINKING, {"min_response_tokens": 7}], ids=str)
def test_a_response_sampled_in_parts_equals_the_whole_response(make: Make, settings: dict[str, object]) -> None:
    sampling = dataclasses.replace(SAMPLING, **settings)
    sampler, weights_at, _ = make()
    whole = sampler.generate(PROMPTS, sampling)
    parts, calls = resumed_to_the_end(sampler, weights_at, dataclasses.replace(sampling, max_call_tokens=5))
    assert calls == -(-max(rollout.num_tokens for rollout in whole) // 5) > 1
    for expected, rollout in zip(whole, parts, strict=True):
        assert (rollout.token_ids, rollout.finish, rollout.sampled_mask, rollout.text) == (
            expected.token_ids,
            expected.finish,
            expected.sampled_mask,
            expected.text,
        )
        assert rollout.behavior_logps == pytest.approx(expected.behavior_logps, abs=1e-5)
        assert (rollout.sample, rollout.prompt) == (expected.sample, expected.prompt)
        assert rollout.token_versions == tuple(index // 5 for index in range(rollout.num_tokens))
        assert (rollout.version_min, rollout.version_max) == (0, rollout.token_versions[-1])


@SAMPLERS
def test_each_token_of_a_resumed_response_has_its_own_version(make: Make) -> None:
    sampler, weights_at, _ = make()
    sampling = dataclasses.replace(SAMPLING, max_call_tokens=5)
    for rollout in resumed_to_the_end(sampler, weights_at, sampling)[0]:
        assert rollout.finish is not Finish.ABORT
        assert rollout.token_versions == tuple(index // 5 for index in range(rollout.num_tokens))
        assert (rollout.version_min, rollout.version_max) == (0, rollout.token_versions[-1])


@SAMPLERS
def test_new_prompts_and_unfinished_rollouts_fit_in_one_call(make: Make) -> None:
    sampler, _, _ = make()
    short = dataclasses.replace(SAMPLING, max_call_tokens=3)
    unfinished = [rollout for rollout in sampler.generate(PROMPTS[:2], short) if rollout.finish is Finish.ABORT]
    assert len(unfinished) > 2
    rollouts = sampler.generate(PROMPTS[1:3], SAMPLING, unfinished=unfinished)
    again = 1 + max(rollout.sample for rollout in unfinished if rollout.prompt == PROMPTS[1])
    new = [
        (prompt.problem.id, first + sample)
        for prompt, first in ((PROMPTS[1], again), (PROMPTS[2], 0))
        for sample in range(4)
    ]
    assert keys(rollouts) == new + keys(unfinished)
    for before, rollout in zip(unfinished, rollouts[8:], strict=True):
        assert rollout.token_ids[:3] == before.token_ids
        assert rollout.finish is not Finish.ABORT


@SAMPLERS
def test_no_prompts_give_no_rollouts(make: Make) -> None:
    sampler, _, _ = make()
    assert sampler.generate([], SAMPLING) == []
    sampler.close()


def test_the_fake_samples_the_given_text_up_to_the_limit() -> None:
    sampler = FakeSampler(lambda prompt, sample: f"naïve {sample}")
    whole, cut = (
        sampler.generate([prompt(2)], dataclasses.replace(SAMPLING, max_response_tokens=n))[1] for n in (9, 3)
    )
    assert (whole.text, whole.finish, whole.num_tokens) == ("naïve 1", Finish.STOP, 9)
    assert (cut.text, cut.finish, cut.num_tokens) == ("na", Finish.LENGTH, 3)
