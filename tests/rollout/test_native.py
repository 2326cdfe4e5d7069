from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from decoding import at_each_step
from fake_sampler import FakeWeights
from test_sampling import filtered_probabilities
from tiny_models import ARCHITECTURES, FlatTokens, packed, prompt, some_prompts, tiny_folder, tiny_policy

from ansatz.errors import ConfigError, ModelError
from ansatz.models import logps
from ansatz.models.load import Policy, load_policy
from ansatz.models.logps import token_logps
from ansatz.models.weights import LiveWeights
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler, forward, slots, step_choice
from ansatz.types import Finish, Prompt, Rollout
from tools.families import END_ID, GPT2_SIZES, MAX_CONTEXT, VOCAB_SIZE

PROMPTS = some_prompts(11)
SAMPLING = Sampling(num_samples=3, max_response_tokens=20, seed=7, step=4)


@pytest.fixture(scope="module")
def policy() -> Policy:
    """Five end tokens, so that lengths differ: some responses end at once, some never."""
    return dataclasses.replace(tiny_policy(), end_ids=(END_ID, 5, 9, 13, 17))


def generate(
    policy: Policy, prompts: Sequence[Prompt] = PROMPTS, sampling: Sampling = SAMPLING, *, max_concurrent: int = 1000
) -> list[Rollout]:
    return NativeSampler(policy, max_concurrent=max_concurrent).generate(prompts, sampling)


def recomputed(policy: Policy, rollouts: Sequence[Rollout], *, temperature: float = 1.0) -> list[float]:
    """The trainer's log-probs of all response tokens, rollout by rollout."""
    token_T, position_T, segment_T = packed([(*rollout.prompt.token_ids, *rollout.token_ids) for rollout in rollouts])
    start_N = torch.tensor([len(rollout.prompt.token_ids) for rollout in rollouts])
    mask_T = position_T >= start_N[segment_T]
    sizes = [size for rollout in rollouts for size in rollout.num_candidates]
    num_candidates_T = torch.zeros_like(token_T).masked_scatter(mask_T, torch.tensor(sizes)) if sizes else None
    min_tokens_N = torch.tensor([rollout.min_response_tokens for rollout in rollouts])
    tokens = FlatTokens(
        token_T,
        position_T,
        segment_T,
        mask_T,
        num_candidates_T=num_candidates_T,
        no_eos_T=position_T < (start_N + min_tokens_N)[segment_T],
    )
    with torch.no_grad():
        logp_T, _ = token_logps(policy, tokens, temperature=temperature)
    return logp_T[mask_T].tolist()


def sampled(rollouts: Sequence[Rollout]) -> list[float]:
    return [logp for rollout in rollouts for logp in rollout.behavior_logps]


def by_key(rollouts: Sequence[Rollout]) -> dict[tuple[str, int], Rollout]:
    return {(rollout.prompt.problem.id, rollout.sample): rollout for rollout in rollouts}


def assert_same(rollouts: Sequence[Rollout], expected: Sequence[Rollout]) -> None:
    """The same responses for the same problems and samples. Log-probs may differ by rounding."""
    got, wanted = by_key(rollouts), by_key(expected)
    assert got.keys() == wanted.keys()
    for key, rollout in got.items():
        assert (rollout.token_ids, rollout.finish, rollout.text) == (
            wanted[key].token_ids,
            wanted[key].finish,
            wanted[key].text,
        )
        assert rollout.behavior_logps == pytest.approx(wanted[key].behavior_logps, abs=1e-4)


@pytest.mark.parametrize(("name", "temperature"), [(name, 0.7) for name in ARCHITECTURES] + [("qwen3, untied", 1.0)])
def test_behavior_log_probs_equal_the_trainers(name: str, temperature: float) -> None:
    policy = tiny_policy(name)
    rollouts = generate(policy, sampling=dataclasses.replace(SAMPLING, temperature=temperature), max_concurrent=16)
    assert sampled(rollouts) == pytest.approx(recomputed(policy, rollouts, temperature=temperature), abs=1e-4)
    assert min(sampled(rollouts)) < -2


def test_a_prompt_that_nearly_fills_a_context_of_learned_positions_is_sampled(tmp_path: Path) -> None:
    sizes = {**GPT2_SIZES, "n_positions": 100, "max_position_embeddings": 100}  # not a multiple of 32
    policy = load_policy(tiny_folder(tmp_path, "GPT2Config", **sizes))
    sampling = Sampling(num_samples=2, max_response_tokens=2)
    rollouts = generate(policy, [prompt(*(2 + n % 50 for n in range(98)))], sampling)
    assert sampled(rollouts) == pytest.approx(recomputed(policy, rollouts), abs=1e-4)


@pytest.mark.parametrize(("top_k", "top_p", "min_p"), [(5, 1.0, 0.0), (0, 0.8, 0.0), (9, 0.9, 0.0), (0, 1.0, 0.1)])
def test_log_probs_are_those_of_the_filtered_distribution(
    policy: Policy, top_k: int, top_p: float, min_p: float
) -> None:
    changes = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    rollouts = generate(policy, sampling=dataclasses.replace(SAMPLING, temperature=1.3, **changes))
    assert sampled(rollouts) == pytest.approx(recomputed(policy, rollouts, temperature=1.3), abs=1e-4)
    for rollout in rollouts:
        start = len(rollout.prompt.token_ids) - 1
        with torch.no_grad():
            logits = (
                policy.model(torch.tensor([[*rollout.prompt.token_ids, *rollout.token_ids]])).logits[0, start:-1] / 1.3
            )
        probabilities = [filtered_probabilities(row, **changes) for row in logits.double().tolist()]
        expected = [
            math.log(probability[token]) for probability, token in zip(probabilities, rollout.token_ids, strict=True)
        ]
        assert rollout.behavior_logps == pytest.approx(expected, abs=1e-4)
        assert list(rollout.num_candidates) == [
            sum(value > 0 for value in probability) for probability in probabilities
        ]


@pytest.mark.parametrize("changes", [{}, {"top_k": 5}, {"top_p": 0.8, "min_p": 0.05}, {"temperature": 0.0}])
def test_end_tokens_are_masked_out_below_the_minimum_length(policy: Policy, changes: dict[str, float]) -> None:
    sampling = dataclasses.replace(SAMPLING, min_response_tokens=6, **changes)
    rollouts = generate(policy, sampling=sampling)
    assert min(rollout.num_tokens for rollout in rollouts) > 6
    assert not {token for rollout in rollouts for token in rollout.token_ids[:6]} & set(policy.end_ids)
    ended = [rollout for rollout in rollouts if rollout.finish is Finish.STOP]
    assert {rollout.token_ids[-1] in policy.end_ids for rollout in ended} == {True}
    if changes.get("temperature") == 0:
        assert set(sampled(rollouts)) == {0.0}
        return
    assert min(rollout.num_tokens for rollout in rollouts) == 7
    assert sampled(rollouts) == pytest.approx(recomputed(policy, rollouts), abs=1e-4)
    for rollout in rollouts:
        start = len(rollout.prompt.token_ids) - 1
        with torch.no_grad():
            logits = policy.model(torch.tensor([[*rollout.prompt.token_ids, *rollout.token_ids]])).logits[0, start:-1]
        logits[:6, list(policy.end_ids)] = -math.inf
        probabilities = [
            filtered_probabilities(row, **{"top_k": 0, "top_p": 1.0, **changes}) for row in logits.double().tolist()
        ]
        expected = [
            math.log(probability[token]) for probability, token in zip(probabilities, rollout.token_ids, strict=True)
        ]
        assert rollout.behavior_logps == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_sampling_equals_generate_of_transformers(name: str) -> None:
    policy = tiny_policy(name)
    plain = copy.deepcopy(policy.model)
    plain.set_attn_implementation("eager")
    for rollout in generate(policy, PROMPTS[:5], SAMPLING.greedy(), max_concurrent=4):
        token_ids = torch.tensor([rollout.prompt.token_ids])
        whole = plain.generate(token_ids, attention_mask=torch.ones_like(token_ids), max_new_tokens=20, do_sample=False)
        assert rollout.token_ids == tuple(whole[0, token_ids.shape[1] :].tolist())
        assert set(rollout.behavior_logps) == {0.0}


def test_a_response_does_not_depend_on_its_batch(policy: Policy) -> None:
    together = generate(policy)
    assert {rollout.finish for rollout in together} == {Finish.STOP, Finish.LENGTH}
    assert len({rollout.num_tokens for rollout in together}) > 5
    assert_same([rollout for prompt in PROMPTS for rollout in generate(policy, [prompt])], together)
    assert_same(generate(policy, PROMPTS[::-1]), together)
    assert_same(generate(policy, PROMPTS[3:6]), [rollout for rollout in together if rollout.prompt in PROMPTS[3:6]])


@pytest.mark.parametrize("max_concurrent", [1, 7, 12])
def test_max_concurrent_changes_no_result(policy: Policy, max_concurrent: int) -> None:
    assert_same(generate(policy, max_concurrent=max_concurrent), generate(policy))


def test_finished_rows_leave_the_batch_and_waiting_groups_enter(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every decoded row of a step gives a token of some rollout, so the batch holds no finished rows."""
    active = at_each_step(monkeypatch, before=lambda batch: batch.active)
    rollouts = generate(policy, max_concurrent=9)
    assert max(active) == 9
    assert sum(active) == sum(rollout.num_tokens - 1 for rollout in rollouts)
    in_waves = sum(max(rollout.num_tokens - 1 for rollout in rollouts[n : n + 9]) for n in range(0, 33, 9))
    assert len(active) < in_waves


def test_a_shared_prompt_is_cached_once_and_dropped_after_its_group(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prompts_groups_span(batch: slots.Slots) -> tuple[int, int, int]:
        return batch.cache.num_prompts, len(batch.column["request"][: batch.active].unique()), batch.cache.span

    held = at_each_step(monkeypatch, after=prompts_groups_span)
    generate(policy, max_concurrent=12)
    assert all(groups <= prompts <= 2 * groups for prompts, groups, _ in held)
    assert any(prompts < before for (prompts, _, _), (before, _, _) in zip(held[1:], held, strict=False))
    assert {span for _, _, span in held} == {32}  # 20 positions per response; with prompts there would be up to 40

    held.clear()
    generate(policy, sampling=dataclasses.replace(SAMPLING, num_samples=1))
    assert {prompts for prompts, _, _ in held} == {0}


def test_a_problem_that_occurs_twice_gets_different_samples(policy: Policy) -> None:
    twice = generate(policy, [PROMPTS[1], PROMPTS[2], PROMPTS[1]])
    assert [rollout.sample for rollout in twice] == [0, 1, 2, 0, 1, 2, 3, 4, 5]
    assert len({rollout.token_ids for rollout in twice if rollout.prompt == PROMPTS[1]}) == 6
    assert_same(twice[:3] + twice[6:], generate(policy, [PROMPTS[1]], dataclasses.replace(SAMPLING, num_samples=6)))


@pytest.mark.parametrize("change", [{"seed": 8}, {"step": 5}])
def test_seed_and_step_change_the_noise(policy: Policy, change: dict[str, int]) -> None:
    first, second = generate(policy), generate(policy, sampling=dataclasses.replace(SAMPLING, **change))
    assert sum(a.token_ids == b.token_ids for a, b in zip(first, second, strict=True)) < 3


def test_a_response_ends_with_its_first_end_token(policy: Policy) -> None:
    for rollout in generate(policy):
        ends = [token in policy.end_ids for token in rollout.token_ids]
        assert not any(ends[:-1])
        assert ends[-1] == (rollout.finish is Finish.STOP)
        assert rollout.finish is Finish.STOP or rollout.num_tokens == 20


def test_the_first_token_can_be_an_end_token(policy: Policy) -> None:
    rollouts = generate(dataclasses.replace(policy, end_ids=tuple(range(VOCAB_SIZE))), max_concurrent=5)
    assert [rollout.num_tokens for rollout in rollouts] == [1] * 33
    assert {rollout.finish for rollout in rollouts} == {Finish.STOP}


def test_a_response_without_an_end_token_reaches_the_limit(policy: Policy) -> None:
    endless = dataclasses.replace(policy, end_ids=(VOCAB_SIZE + 1,))
    for limit in (1, 7):
        rollouts = generate(endless, sampling=dataclasses.replace(SAMPLING, max_response_tokens=limit))
        assert [rollout.num_tokens for rollout in rollouts] == [limit] * 33
        assert {rollout.finish for rollout in rollouts} == {Finish.LENGTH}


def test_prompt_and_response_can_fill_the_context_but_not_exceed_it(policy: Policy) -> None:
    endless = dataclasses.replace(policy, end_ids=(VOCAB_SIZE + 1,))
    prompts, limit = [prompt(*range(2, 30)), prompt(7, name="short")], MAX_CONTEXT - 28
    rollouts = generate(endless, prompts, dataclasses.replace(SAMPLING, max_response_tokens=limit))
    assert len(rollouts[0].token_ids) == limit
    assert sampled(rollouts) == pytest.approx(recomputed(policy, rollouts), abs=1e-4)
    with pytest.raises(
        ModelError, match=r"a prompt of 28 tokens plus rollout.max_response_tokens = 101 exceeds .* 128 tokens"
    ):
        generate(policy, prompts, dataclasses.replace(SAMPLING, max_response_tokens=limit + 1))


def test_an_empty_prompt_is_refused(policy: Policy) -> None:
    with pytest.raises(ModelError, match="the prompt of problem 'p' has no tokens"):
        generate(policy, [PROMPTS[0], prompt()])


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_in_bfloat16_sampler_and_trainer_agree_within_a_few_percent(top_p: float) -> None:
    policy = tiny_policy(dtype=torch.bfloat16)
    rollouts = generate(policy, sampling=dataclasses.replace(SAMPLING, top_p=top_p), max_concurrent=12)
    gaps = [abs(a - b) for a, b in zip(sampled(rollouts), recomputed(policy, rollouts), strict=True)]
    assert 1 < math.exp(sum(gaps) / len(gaps)) < 1.05


def test_the_text_is_the_decoded_response_without_its_end_token() -> None:
    policy = tiny_policy()
    for rollout in generate(policy, sampling=dataclasses.replace(SAMPLING, max_response_tokens=100)):
        words = [f"t{token}" for token in rollout.token_ids if token > END_ID]
        assert rollout.text.split() == words


def test_only_live_weights_of_the_same_policy_can_be_loaded(policy: Policy) -> None:
    sampler = NativeSampler(policy, max_concurrent=8, version=3)
    with pytest.raises(ModelError, match="shares the trainer's model"):
        sampler.load_weights(LiveWeights(policy=tiny_policy(), version=4))
    with pytest.raises(ModelError, match="shares the trainer's model"):
        sampler.load_weights(FakeWeights(version=4))
    assert {(rollout.version_min, rollout.version_max) for rollout in sampler.generate(PROMPTS[:1], SAMPLING)} == {
        (3, 3)
    }
    sampler.load_weights(LiveWeights(policy=policy, version=4))
    assert {(rollout.version_min, rollout.version_max) for rollout in sampler.generate(PROMPTS[:1], SAMPLING)} == {
        (4, 4)
    }


def test_an_update_in_place_takes_effect_at_once() -> None:
    policy = tiny_policy()
    sampler = NativeSampler(policy, max_concurrent=8)
    before = sampler.generate(PROMPTS, SAMPLING)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter += 0.05
    after = sampler.generate(PROMPTS, SAMPLING)
    assert sampled(after) == pytest.approx(recomputed(policy, after), abs=1e-4)
    assert [rollout.token_ids for rollout in before] != [rollout.token_ids for rollout in after]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_fast_path_is_used_for_models_with_llamas_layout(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_choice, "_choose_fused", lambda policy: None)
    step = step_choice.choose_decode_step(tiny_policy(name))
    assert isinstance(step, forward.FastDecodeStep) == (
        not name.startswith(("gemma", "qwen3 mixture", "gpt-oss", "deepseek"))
    )


def test_the_fast_path_is_not_used_if_its_bits_differ(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = policy.model.base_model.layers[0].self_attn
    plain = attention.forward
    monkeypatch.setattr(attention, "forward", lambda *args, **kwargs: (2 * plain(*args, **kwargs)[0], None))
    assert isinstance(step_choice.choose_decode_step(policy), forward.ReferenceDecodeStep)


def test_both_decode_paths_sample_the_same_rollouts(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_choice, "_choose_fused", lambda policy: None)
    fast = generate(policy)
    monkeypatch.setattr("ansatz.rollout.native.sampler.choose_decode_step", forward.ReferenceDecodeStep)
    assert generate(policy) == fast


def test_a_resumed_rollout_keeps_the_log_probs_of_the_old_weights(policy: Policy) -> None:
    policy = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
    sampler = NativeSampler(policy, max_concurrent=8)
    unfinished = [
        rollout
        for rollout in sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, max_call_tokens=6))
        if rollout.finish is Finish.ABORT
    ]
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter += 0.05
    sampler.load_weights(LiveWeights(policy=policy, version=1))
    ended = sampler.generate([], SAMPLING, unfinished=unfinished)
    again = iter(recomputed(policy, ended))
    for before, rollout in zip(unfinished, ended, strict=True):
        new = [next(again) for _ in rollout.token_ids]
        assert rollout.behavior_logps[:6] == before.behavior_logps
        assert rollout.behavior_logps[6:] == pytest.approx(new[6:], abs=1e-4)
        assert rollout.behavior_logps[:6] != pytest.approx(new[:6], abs=1e-2)
        assert rollout.token_versions == (0,) * 6 + (1,) * (rollout.num_tokens - 6)


@pytest.mark.parametrize("limit", [4, 6])
def test_a_limit_below_a_response_that_has_begun_is_refused(policy: Policy, limit: int) -> None:
    sampler = NativeSampler(policy, max_concurrent=8)
    called = sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, max_call_tokens=6))
    unfinished = [rollout for rollout in called if rollout.finish is Finish.ABORT]
    with pytest.raises(ConfigError, match=rf"max_response_tokens = {limit}: .* response of 6 tokens. Set it to 7 or"):
        sampler.generate([], dataclasses.replace(SAMPLING, max_response_tokens=limit), unfinished=unfinished)


def test_resumed_rollouts_do_not_depend_on_new_groups_in_the_batch(policy: Policy) -> None:
    sampler = NativeSampler(policy, max_concurrent=14)
    called = sampler.generate(PROMPTS[:6], dataclasses.replace(SAMPLING, max_call_tokens=6))
    unfinished = [rollout for rollout in called if rollout.finish is Finish.ABORT]
    together = sampler.generate(PROMPTS[6:], SAMPLING, unfinished=unfinished)
    assert len(unfinished) > 3
    assert_same(together, [*generate(policy, PROMPTS[6:]), *sampler.generate([], SAMPLING, unfinished=unfinished)])


@pytest.mark.parametrize("rows", [1, 5])
def test_sampling_in_chunks_gives_the_same_tokens(policy: Policy, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    whole, sizes = generate(policy), list[int]()
    sample_tokens = slots.sample_tokens
    monkeypatch.setattr(logps, "CHUNK_LOGITS", rows * VOCAB_SIZE + 1)
    monkeypatch.setattr(logps, "CHUNK_ROWS", 1)
    monkeypatch.setattr(
        slots,
        "sample_tokens",
        lambda logits, *args, **filters: (sizes.append(len(logits)), sample_tokens(logits, *args, **filters))[1],
    )
    assert_same(generate(policy), whole)
    assert max(sizes) == rows


def test_no_product_of_the_head_has_few_rows_where_nothing_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of one or two rows can round differently from one of many: the last chunk has as few, and so have the
    prompts of a chunk of first tokens."""
    policy, sizes = tiny_policy(device="cpu"), list[int]()
    monkeypatch.setattr(step_choice, "_choose_fused", lambda policy: None)
    monkeypatch.setattr(logps, "CHUNK_LOGITS", 20 * VOCAB_SIZE)
    monkeypatch.setattr(logps, "CHUNK_ROWS", 1)
    policy.head.register_forward_hook(lambda head, inputs, logits: sizes.append(len(inputs[0])))
    generate(policy)
    assert {size % slots.ROW_STEP for size in sizes} == {0}


@pytest.mark.parametrize("groups_per_call", [1, 2, 3])
def test_a_rollout_has_the_same_bits_whichever_groups_are_sampled_with_it(groups_per_call):
    """Workers share the groups of a step, so each call has other groups than a call for the whole step."""
    sampler, prompts = NativeSampler(tiny_policy(), max_concurrent=64), some_prompts(6)
    sampling = Sampling(num_samples=8, max_response_tokens=12, seed=3)
    parts = [prompts[first : first + groups_per_call] for first in range(0, 6, groups_per_call)]
    shared = [rollout for part in parts for rollout in sampler.generate(part, sampling)]
    assert shared == sampler.generate(prompts, sampling)
