"""What every sampler keeps to, the fake included."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import END_ID, MAX_CONTEXT, VOCAB_SIZE, prompt, some_prompts, tiny_folder, tiny_policy

from ansatz.models.load import Policy, load_policy
from ansatz.models.weights import LiveWeights, WeightSource
from ansatz.rollout.base import Sampler, Sampling, Tool
from ansatz.rollout.engines import engine_of
from ansatz.rollout.fake import END, FakeSampler, FakeWeights
from ansatz.rollout.native import NativeSampler
from ansatz.rollout.vllm import VllmSampler
from ansatz.rollout.vllm.fake import FakeEngine, FakePublisher
from ansatz.types import Finish, Prompt, Rollout

PROMPTS = some_prompts(5)
SAMPLING = Sampling(num_samples=4, max_response_tokens=12, seed=3, step=2)
POLICY = tiny_policy()


WeightsAt = Callable[[int], WeightSource]
"""The same weights as those of version N."""
Subject = tuple[Sampler, WeightsAt, set[int]]
"""A sampler at version 0, what it loads weights from, and its end tokens."""


def live(policy: Policy) -> WeightsAt:
    return lambda version: LiveWeights(policy=policy, version=version)


def native(tool: Tool | None = None) -> Subject:
    policy = dataclasses.replace(POLICY, end_ids=(END_ID, 5, 9, 13))
    return NativeSampler(policy, max_concurrent=8, tool=tool), live(policy), set(policy.end_ids)


def fake(tool: Tool | None = None) -> Subject:
    def respond(prompt: Prompt, sample: int) -> str:
        return f"{prompt.problem.id}: " + "x" * (3 * sample)

    return FakeSampler(respond, tool=tool), lambda version: FakeWeights(version=version), {END}


def vllm_without_vllm(tool: Tool | None = None) -> Subject:
    policy = dataclasses.replace(POLICY, end_ids=(END_ID, 5, 9, 13))
    engine, publisher = FakeEngine(vocab_size=VOCAB_SIZE), FakePublisher()
    sampler = VllmSampler(policy, engine=engine, publisher=publisher, max_context=MAX_CONTEXT, tool=tool)
    return sampler, live(policy), set(policy.end_ids)


@functools.cache
def running_vllm() -> VllmSampler:
    """One engine for all: a start takes half a minute."""
    folder = Path(tempfile.mkdtemp())
    policy = load_policy(tiny_folder(folder, head_dim=32))
    sampler = engine_of({"name": "vllm", "max_concurrent": 8})(dataclasses.replace(policy, end_ids=(END_ID, 5, 9, 13)))
    assert isinstance(sampler, VllmSampler)
    atexit.register(sampler.close)
    return sampler


def vllm(tool: Tool | None = None) -> Subject:
    sampler = running_vllm()
    sampler.tool = tool
    weights_at = live(sampler.policy)
    sampler.load_weights(weights_at(0))
    return sampler, weights_at, set(sampler.policy.end_ids)


Make = Callable[..., Subject]
STOP = ("t3", "xx")  # in some responses of the one and of the other
THINKING = {"thinking_budget": 5, "thought_end": "t2", "closing": "t8 t20"}
SAMPLERS = pytest.mark.parametrize(
    "make", [native, fake, vllm_without_vllm, pytest.param(vllm, marks=pytest.mark.vllm)]
)


def keys(rollouts: list[Rollout]) -> list[tuple[str, int]]:
    return [(one.prompt.problem.id, one.sample) for one in rollouts]


@SAMPLERS
def test_rollouts_come_in_the_order_of_prompts_and_samples(make: Make) -> None:
    rollouts = make()[0].generate(PROMPTS, SAMPLING)
    assert keys(rollouts) == [(one.problem.id, sample) for one in PROMPTS for sample in range(4)]
    assert [one.prompt for one in rollouts] == [one for one in PROMPTS for _ in range(4)]
    assert {one.seed for one in rollouts} == {3}


@SAMPLERS
def test_each_rollout_ends_by_an_end_token_or_at_the_limit_and_says_which(make: Make) -> None:
    sampler, _, end_ids = make()
    rollouts = sampler.generate(PROMPTS, SAMPLING)
    assert {one.finish for one in rollouts} == {Finish.STOP, Finish.LENGTH}
    for one in rollouts:
        assert 1 <= one.num_tokens <= 12
        assert not end_ids.intersection(one.token_ids[:-1])
        assert (one.token_ids[-1] in end_ids) == (one.finish is Finish.STOP)
        assert one.finish is Finish.STOP or one.num_tokens == 12


@SAMPLERS
def test_the_first_tokens_up_to_the_minimum_are_no_end_tokens(make: Make) -> None:
    sampler, _, end_ids = make()
    rollouts = sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, min_response_tokens=9))
    assert {one.min_response_tokens for one in rollouts} == {9}
    assert not {token for one in rollouts for token in one.token_ids[:9]} & end_ids
    assert {one.finish for one in rollouts} == {Finish.STOP, Finish.LENGTH}
    assert all(one.num_tokens > 9 for one in rollouts)


@SAMPLERS
def test_a_stop_string_ends_a_response_which_keeps_its_tokens(make: Make) -> None:
    sampler, _, end_ids = make()
    stopped = 0
    plain = sampler.generate(PROMPTS, SAMPLING)
    for one, whole in zip(sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, stop=STOP)), plain, strict=True):
        assert one.token_ids == whole.token_ids[: one.num_tokens]
        assert one.sampled_mask == ()
        held = any(stop in one.text for stop in STOP)
        assert held == any(stop in whole.text for stop in STOP)
        assert one.finish is (Finish.STOP if held or one.token_ids[-1] in end_ids else Finish.LENGTH)
        stopped += one.num_tokens < whole.num_tokens
    assert stopped > 3


@SAMPLERS
def test_an_open_thought_is_closed_at_its_budget_by_tokens_that_the_policy_did_not_choose(make: Make) -> None:
    sampler, _, end_ids = make()
    rollouts = sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, max_response_tokens=20, **THINKING))
    forced = [one for one in rollouts if one.sampled_mask]
    assert len(forced) > 2
    for one in forced:
        assert one.sampled_mask[:6] == (*[True] * 5, False)
        assert {logp for logp, chosen in zip(one.behavior_logps, one.sampled_mask, strict=True) if not chosen} == {0.0}
        assert all(one.sampled_mask[one.sampled_mask.count(False) + 5 :])
        assert one.finish is (Finish.BUDGET if one.token_ids[-1] in end_ids else Finish.LENGTH)
        assert "t8 t20" in one.text
    assert len({one.token_ids[5 : 5 + one.sampled_mask.count(False)] for one in forced}) == 1


@SAMPLERS
def test_a_tool_is_asked_at_stop_strings_and_its_words_are_not_the_policys(make: Make) -> None:
    told: list[str] = []

    def tool(text: str) -> str | None:
        told.append(text)
        return "t7 t7" if "t7" not in text else None

    sampler, _, _ = make(tool)
    rollouts = sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, max_response_tokens=30, stop=STOP))
    assert told
    assert all(any(stop in text for stop in STOP) for text in told)
    observed = [one for one in rollouts if one.sampled_mask]
    assert len(observed) > 3
    for one in observed:
        assert "t7 t7" in one.text
        assert 0 < one.sampled_mask.count(False) <= 5
        assert {logp for logp, chosen in zip(one.behavior_logps, one.sampled_mask, strict=True) if not chosen} == {0.0}
    assert any(one.sampled_mask[-1] and one.num_tokens > one.sampled_mask.index(False) + 5 for one in observed)


@SAMPLERS
def test_log_probs_are_not_positive_and_zero_when_greedy(make: Make) -> None:
    sampler, _, _ = make()
    assert all(logp <= 0 for one in sampler.generate(PROMPTS, SAMPLING) for logp in one.behavior_logps)
    greedy = sampler.generate(PROMPTS, SAMPLING.greedy())
    assert keys(greedy) == [(one.problem.id, 0) for one in PROMPTS]
    assert {logp for one in greedy for logp in one.behavior_logps} == {0.0}


@SAMPLERS
def test_greedy_gives_every_sample_of_a_prompt_the_same_response(make: Make) -> None:
    rollouts = make()[0].generate(PROMPTS, dataclasses.replace(SAMPLING, temperature=0.0))
    assert len({(one.prompt.problem.id, one.token_ids) for one in rollouts}) == len(PROMPTS)


@SAMPLERS
def test_the_same_call_gives_the_same_rollouts_and_order_does_not_matter(make: Make) -> None:
    sampler, _, _ = make()
    first, again = sampler.generate(PROMPTS, SAMPLING), sampler.generate(PROMPTS, SAMPLING)
    assert first == again
    turned = sampler.generate(PROMPTS[::-1], SAMPLING)
    assert sorted((*key, one.token_ids) for key, one in zip(keys(turned), turned, strict=True)) == sorted(
        (*key, one.token_ids) for key, one in zip(keys(first), first, strict=True)
    )


@SAMPLERS
def test_on_finished_is_told_of_every_rollout_once(make: Make) -> None:
    told: list[Rollout] = []
    rollouts = make()[0].generate(PROMPTS, SAMPLING, on_finished=told.append)
    assert len(told) == len(rollouts)
    assert {id(one) for one in told} == {id(one) for one in rollouts}


@SAMPLERS
def test_a_problem_that_comes_again_goes_on_counting_its_samples(make: Make) -> None:
    again = [PROMPTS[0], PROMPTS[1], PROMPTS[0]]
    assert [one.sample for one in make()[0].generate(again, SAMPLING)] == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7]


@SAMPLERS
def test_a_version_stands_on_what_is_sampled_after_it(make: Make) -> None:
    sampler, weights_at, _ = make()
    before = sampler.generate(PROMPTS[:1], SAMPLING)
    sampler.load_weights(weights_at(9))
    after = sampler.generate(PROMPTS[:1], SAMPLING)
    assert {(one.version_min, one.version_max) for one in before} == {(0, 0)}
    assert {(one.version_min, one.version_max) for one in after} == {(9, 9)}


def through(sampler: Sampler, weights_at: WeightsAt, sampling: Sampling) -> tuple[list[Rollout], int]:
    """Rollouts that are gone on with until each has ended, the weights a version newer in each call; and the calls."""
    rollouts, calls = sampler.generate(PROMPTS, sampling), 1
    while unfinished := [one for one in rollouts if one.finish is Finish.ABORT]:
        sampler.load_weights(weights_at(calls))
        gone_on = iter(sampler.generate([], sampling, unfinished=unfinished))
        rollouts = [next(gone_on) if one.finish is Finish.ABORT else one for one in rollouts]
        calls += 1
    return rollouts, calls


@pytest.mark.parametrize("make", [native, fake])  # vLLM has no noise by a token's place: other parts, other tokens
@pytest.mark.parametrize("how", [{}, {"stop": STOP}, THINKING, {"min_response_tokens": 7}], ids=str)
def test_a_response_in_parts_is_the_whole_response(make: Make, how: dict[str, object]) -> None:
    sampling = dataclasses.replace(SAMPLING, **how)
    sampler, weights_at, _ = make()
    whole = sampler.generate(PROMPTS, sampling)
    parts, calls = through(sampler, weights_at, dataclasses.replace(sampling, max_call_tokens=5))
    assert calls == -(-max(one.num_tokens for one in whole) // 5) > 1
    for one, other in zip(whole, parts, strict=True):
        assert (one.token_ids, one.finish, one.sampled_mask, one.text) == (
            other.token_ids,
            other.finish,
            other.sampled_mask,
            other.text,
        )
        assert other.behavior_logps == pytest.approx(one.behavior_logps, abs=1e-5)
        assert (one.sample, one.prompt) == (other.sample, other.prompt)
        assert other.token_versions == tuple(index // 5 for index in range(other.num_tokens))
        assert (other.version_min, other.version_max) == (0, other.token_versions[-1])


@SAMPLERS
def test_each_part_of_a_response_says_whose_it_is(make: Make) -> None:
    sampler, weights_at, _ = make()
    sampling = dataclasses.replace(SAMPLING, max_call_tokens=5)
    for one in through(sampler, weights_at, sampling)[0]:
        assert one.finish is not Finish.ABORT
        assert one.token_versions == tuple(index // 5 for index in range(one.num_tokens))
        assert (one.version_min, one.version_max) == (0, one.token_versions[-1])


@SAMPLERS
def test_new_prompts_and_unfinished_rollouts_go_in_one_call(make: Make) -> None:
    sampler, _, _ = make()
    short = dataclasses.replace(SAMPLING, max_call_tokens=3)
    unfinished = [one for one in sampler.generate(PROMPTS[:2], short) if one.finish is Finish.ABORT]
    assert len(unfinished) > 2
    rollouts = sampler.generate(PROMPTS[1:3], SAMPLING, unfinished=unfinished)
    again = 1 + max(one.sample for one in unfinished if one.prompt == PROMPTS[1])
    new = [
        (one.problem.id, first + sample) for one, first in ((PROMPTS[1], again), (PROMPTS[2], 0)) for sample in range(4)
    ]
    assert keys(rollouts) == new + keys(unfinished)
    for begun, one in zip(unfinished, rollouts[8:], strict=True):
        assert one.token_ids[:3] == begun.token_ids
        assert one.finish is not Finish.ABORT


@SAMPLERS
def test_no_prompts_give_no_rollouts(make: Make) -> None:
    sampler, _, _ = make()
    assert sampler.generate([], SAMPLING) == []
    sampler.close()


def test_the_fake_says_what_it_was_told_to_say() -> None:
    sampler = FakeSampler(lambda prompt, sample: f"naïve {sample}")
    whole, cut = (
        sampler.generate([prompt(2)], dataclasses.replace(SAMPLING, max_response_tokens=n))[1] for n in (9, 3)
    )
    assert (whole.text, whole.finish, whole.num_tokens) == ("naïve 1", Finish.STOP, 9)
    assert (cut.text, cut.finish, cut.num_tokens) == ("na", Finish.LENGTH, 3)
