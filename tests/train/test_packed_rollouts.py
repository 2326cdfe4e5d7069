from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from batches import CPU, objective_of, some_samples, whole_batch
from torch import Tensor

from ansatz.train.packed import PackedRollouts, pack_rollouts, select_rollouts, split_into_microbatches
from ansatz.train.sample import TrainSample

PROMPTS = ([1, 2, 3], [1, 2], [1, 2, 3], [4, 2, 3])


def test_packing_keeps_every_sample_and_orders_by_prompt_and_then_by_length() -> None:
    samples = some_samples()
    packed = pack_rollouts(samples, device=CPU)
    found: list[tuple[Any, ...]] = []
    for n in range(packed.num_rollouts):
        own_T = packed.segment_T == n
        response_T = own_T & packed.sampled_mask_T
        prompt = packed.token_T[own_T & ~packed.sampled_mask_T].tolist()
        logps = [round(logp, 5) for logp in packed.behavior_logp_T[response_T].tolist()]
        found.append((prompt, packed.token_T[response_T].tolist(), logps, packed.group_N[n].item()))
        assert packed.position_T[own_T].tolist() == list(range(int(own_T.sum())))
        assert packed.sampled_mask_T[own_T].tolist() == [False] * len(prompt) + [True] * len(logps)
        sample = next(sample for sample in samples if sample.token_ids == found[-1][1])
        assert packed.reward_N[n].item() == pytest.approx(sample.reward)
        assert packed.truncated_N[n].item() is sample.truncated
        assert packed.component_NK[n].tolist() == pytest.approx(sample.components)
        assert samples[packed.sample_N[n]] is sample
    expected = [
        (list(sample.prompt_ids), sample.token_ids, [round(logp, 5) for logp in sample.behavior_logps], sample.group)
        for sample in samples
    ]
    assert sorted(found) == sorted(expected)
    prompts = [tuple(prompt) for prompt, *_ in found]
    by_prompt = {
        prompt: [len(response) for other, response, *_ in found if tuple(other) == prompt] for prompt in prompts
    }
    assert prompts == [prompt for prompt, lengths in by_prompt.items() for _ in lengths]  # side by side
    assert all(lengths == sorted(lengths, reverse=True) for lengths in by_prompt.values())
    longest = [len(prompt) + lengths[0] for prompt, lengths in by_prompt.items()]
    assert longest == sorted(longest, reverse=True)
    assert not packed.behavior_logp_T[~packed.sampled_mask_T].any()


def test_rollouts_of_one_prompt_share_its_number_and_their_responses_have_none() -> None:
    samples = [
        TrainSample(prompt_ids=prompt, token_ids=[9], behavior_logps=[0.0], group=0, reward=0.0) for prompt in PROMPTS
    ]
    packed = pack_rollouts(samples, device=CPU)
    assert packed.prompt_id_T is not None
    numbers = {
        tuple(packed.token_T[own_T & ~packed.sampled_mask_T].tolist()): set(
            packed.prompt_id_T[own_T & ~packed.sampled_mask_T].tolist()
        )
        for own_T in (packed.segment_T == n for n in range(len(samples)))
    }
    assert sorted(map(len, numbers.values())) == [1, 1, 1]
    assert len(set.union(*numbers.values())) == 3
    assert set(packed.prompt_id_T[packed.sampled_mask_T].tolist()) == {-1}
    assert pack_rollouts(samples[:2], device=CPU).prompt_id_T is None


def test_numbers_of_candidates_stay_with_their_tokens_and_default_to_the_whole_vocabulary() -> None:
    samples = some_samples()
    assert pack_rollouts(samples, device=CPU).num_candidates_T is None
    samples[4] = dataclasses.replace(samples[4], num_candidates=list(range(3, 3 + len(samples[4].token_ids))))
    batch = whole_batch(samples, objective_of("grpo"))
    for part in (batch, *batch.microbatches(40)[0]):
        token_T, num_candidates_T = (
            part.packed.token_T[part.mask_T].tolist(),
            part.packed.num_candidates_T[part.mask_T].tolist(),
        )
        own = dict(zip(samples[4].token_ids, samples[4].num_candidates, strict=True))
        assert num_candidates_T == [own.get(token, 2**31) for token in token_T]


def test_only_the_first_tokens_of_a_sample_with_a_minimum_length_have_no_eos() -> None:
    samples = some_samples()
    assert pack_rollouts(samples, device=CPU).no_eos_T is None
    samples[4] = dataclasses.replace(samples[4], min_response_tokens=len(samples[4].token_ids) - 1)
    samples[7] = dataclasses.replace(samples[7], min_response_tokens=100)
    expected = {*samples[4].token_ids[:-1], *samples[7].token_ids}
    packed = pack_rollouts(samples, device=CPU)
    assert set(packed.token_T[packed.no_eos_T].tolist()) == expected
    own = select_rollouts(packed, packed.segment_T[packed.token_T == samples[4].token_ids[0]])
    assert own.token_T[own.no_eos_T].tolist() == samples[4].token_ids[:-1]


def test_forced_tokens_are_context_only() -> None:
    samples = [sample for sample in some_samples(size=6) if len(sample.token_ids) > 4]
    samples = [
        dataclasses.replace(sample, sampled_mask=[True, False, *[True] * (len(sample.token_ids) - 4), False, False])
        for sample in samples
    ]
    packed = pack_rollouts(samples, device=CPU)
    forced = {sample.token_ids[index] for sample in samples for index in (1, -2, -1)}
    response = {token for sample in samples for token in sample.token_ids}
    assert set(packed.token_T[packed.sampled_mask_T].tolist()) == response - forced
    assert set(packed.token_T[packed.prompt_id_T < 0].tolist()) == response
    assert not packed.behavior_logp_T[~packed.sampled_mask_T].any()
    assert packed.step_end_T[packed.sampled_mask_T].sum() == len(samples)
    assert packed.step_reward_T.sum().item() == pytest.approx(sum(sample.reward for sample in samples))
    last = {sample.token_ids[-3] for sample in samples}
    assert set(packed.token_T[packed.step_end_T].tolist()) == last


def test_steps_that_end_on_forced_tokens_move_back_to_the_last_sampled_token_and_add_up() -> None:
    sample = dataclasses.replace(
        some_samples()[0],
        token_ids=[5, 6, 7, 8, 9],
        behavior_logps=[-1.0] * 5,
        sampled_mask=[True, True, False, False, True],
        steps=[(1, 0.25), (3, 0.5), (4, 1.0)],
    )
    packed = pack_rollouts([sample], device=CPU)
    first = len(sample.prompt_ids)
    assert packed.step_end_T.nonzero().flatten().tolist() == [first + 1, first + 4]
    assert packed.step_reward_T[first:].tolist() == [0.0, 0.75, 0.0, 0.0, 1.0]


def test_a_sample_without_a_prompt_or_with_lists_of_another_length_is_refused() -> None:
    sample = some_samples()[0]
    with pytest.raises(ValueError, match="has no prompt"):
        pack_rollouts([sample, dataclasses.replace(sample, prompt_ids=[])], device=CPU)
    with pytest.raises(ValueError, match="entries in behavior_logps"):
        pack_rollouts([dataclasses.replace(sample, behavior_logps=[*sample.behavior_logps, -1.0])], device=CPU)
    with pytest.raises(ValueError, match="entries in sampled_mask"):
        pack_rollouts([dataclasses.replace(sample, sampled_mask=[True, *[True] * len(sample.token_ids)])], device=CPU)
    with pytest.raises(ValueError, match="no token that the policy sampled"):
        pack_rollouts([dataclasses.replace(sample, sampled_mask=[False] * len(sample.token_ids))], device=CPU)


@pytest.mark.parametrize("max_tokens", [1, 17, 40, 64, 10**6])
def test_microbatches_hold_every_rollout_once_and_keep_to_the_limit_unless_they_hold_a_single_one(
    max_tokens: int,
) -> None:
    batch = whole_batch(some_samples(), objective_of("grpo"))
    lengths = torch.bincount(batch.segment_T)
    runs = [run.tolist() for run in split_into_microbatches(batch.packed, max_tokens)]
    assert [n for run in runs for n in run] == list(range(12))
    assert all(len(run) == 1 or len(run) * int(lengths[run].max()) <= max_tokens for run in runs)
    for run, after in itertools.pairwise(runs):  # none could have taken one more
        assert (len(run) + 1) * int(lengths[[*run, after[0]]].max()) > max_tokens


@pytest.mark.parametrize("multiple", [2, 3, 5])
@pytest.mark.parametrize("max_tokens", [70, 10**6])
def test_microbatches_for_several_workers_are_a_multiple_and_similar_in_size(multiple: int, max_tokens: int) -> None:
    lengths = [9 + 7 * n % 40 for n in range(60)]
    samples = [
        TrainSample(
            prompt_ids=[n // 4 + 1] * 8, token_ids=[5] * one, behavior_logps=[0.0] * one, group=n // 4, reward=0.0
        )
        for n, one in enumerate(lengths)
    ]
    packed = pack_rollouts(samples, device=CPU)
    runs = [run.tolist() for run in split_into_microbatches(packed, max_tokens, multiple=multiple)]
    assert [n for run in runs for n in run] == list(range(60))
    if max_tokens == 10**6:
        sizes = [int(torch.isin(packed.segment_T[packed.sampled_mask_T], torch.tensor(run)).sum()) for run in runs]
        assert len(runs) == multiple
        assert max(sizes) - min(sizes) <= 2 * max(lengths) + 16
    else:
        padded = torch.bincount(packed.segment_T)
        assert all(len(run) == 1 or len(run) * int(padded[run].max()) <= max_tokens for run in runs)


def test_selecting_rollouts_refuses_a_field_whose_name_does_not_end_in_an_axis() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Wider(PackedRollouts):
        extra: Tensor

    packed = pack_rollouts(some_samples(), device=CPU)
    values = {field.name: getattr(packed, field.name) for field in dataclasses.fields(packed)}
    with pytest.raises(AssertionError, match="extra names no axis"):
        select_rollouts(Wider(**values, extra=torch.zeros(3)), torch.tensor([0]))
