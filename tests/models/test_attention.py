from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tiny_models import ARCHITECTURES, packed, some_sequences, tiny_policy
from torch import Tensor

from ansatz.models import attention
from ansatz.models.load import Policy
from ansatz.rollout.native.cache import PrefillCache, SlotCache

LENGTHS = (19, 33, 1, 8)


def loss_of(hidden_TH: Tensor) -> Tensor:
    """A function that depends on every hidden state."""
    direction_TH = torch.randn(hidden_TH.shape, generator=torch.Generator().manual_seed(1))
    return (hidden_TH.float() * direction_TH).sum()


def gradients(policy: Policy, hidden_TH: Tensor) -> dict[str, Tensor]:
    policy.model.zero_grad()
    loss_of(hidden_TH).backward()
    return {name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None}


def alone(policy: Policy, sequences: list[list[int]]) -> Tensor:
    """Each sequence in a separate forward pass with transformers' eager attention."""
    policy.model.set_attn_implementation("eager")
    rows = [policy.model.base_model(torch.tensor([sequence])).last_hidden_state[0] for sequence in sequences]
    attention.install(policy.model)
    return torch.cat(rows)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_packed_hidden_states_and_gradients_equal_those_of_each_sequence_alone(name: str) -> None:
    policy, sequences = tiny_policy(name), some_sequences(*LENGTHS)
    together_TH, alfirst_TH = policy.packed_hidden(*packed(sequences)), alone(policy, sequences)
    torch.testing.assert_close(together_TH, alfirst_TH, rtol=1e-4, atol=1e-5)
    packed_gradients, expected = gradients(policy, together_TH), gradients(policy, alfirst_TH)
    assert packed_gradients.keys() == expected.keys()
    for parameter, gradient in expected.items():
        gap = (packed_gradients[parameter] - gradient).abs().max() / gradient.abs().max().clamp(min=1e-6)
        assert gap < 1e-4, parameter


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_shared_prompt_is_computed_once_with_the_same_states_and_gradients(
    name: str, dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dense attention lays out prompts and responses separately; fused attention has whole rows."""
    monkeypatch.setattr(attention, "_dense_is_faster", lambda *_: dense)
    policy = tiny_policy(name)
    prompt_a, prompt_b, *ends = some_sequences(11, 7, 4, 9, 6, 3)
    sequences = [prompt_a + ends[0], prompt_a + ends[1], prompt_b + ends[2], prompt_a + ends[3], prompt_b]
    token_T, position_T, segment_T = packed(sequences)
    prompt_id_T = torch.full_like(token_T, -1)
    prompts = [(4, prompt_a), (4, prompt_a), (2, prompt_b), (4, prompt_a), (2, prompt_b)]
    for segment, (prompt_id, prompt) in enumerate(prompts):
        prompt_id_T[(segment_T == segment) & (position_T < len(prompt))] = prompt_id
    with rows_through(policy) as computed:
        together_TH = policy.packed_hidden(token_T, position_T, segment_T, prompt_id_T=prompt_id_T)
    shared_gradients = gradients(policy, together_TH)
    copied_TH = policy.packed_hidden(token_T, position_T, segment_T)
    torch.testing.assert_close(together_TH, copied_TH, rtol=1e-4, atol=1e-5)
    for parameter, gradient in gradients(policy, copied_TH).items():
        gap = (shared_gradients[parameter] - gradient).abs().max() / gradient.abs().max().clamp(min=1e-6)
        assert gap < 1e-4, parameter
    assert computed == [11 + 7 + 4 + 9 + 6 + 3]


@contextmanager
def rows_through(policy: Policy) -> Iterator[list[int]]:
    """The number of distinct tokens in each call of the model, without padding."""
    counts: list[int] = []
    hidden = policy.model.base_model.forward

    def count(**kwargs: Any) -> Any:
        packed = kwargs["packed"]
        counts.append(packed.num_tokens - len(packed.padded.tokens.empty_E))
        return hidden(**kwargs)

    policy.model.base_model.forward = count
    try:
        yield counts
    finally:
        policy.model.base_model.forward = hidden


def test_a_segment_does_not_see_its_neighbours() -> None:
    policy = tiny_policy()
    first, second, third = some_sequences(12, 20, 7)
    other = some_sequences(12, seed=9)[0]
    with torch.no_grad():
        first_TH = policy.packed_hidden(*packed([first, second, third]))
        second_TH = policy.packed_hidden(*packed([other, second, third]))
    assert torch.equal(first_TH[12:], second_TH[12:])
    assert not torch.allclose(first_TH[:12], second_TH[:12])


def test_a_token_does_not_see_what_follows_it() -> None:
    policy = tiny_policy()
    sequence = some_sequences(20)[0]
    changed = [*sequence[:15], *(token % 7 + 2 for token in sequence[15:])]
    with torch.no_grad():
        first_TH, second_TH = (policy.packed_hidden(*packed([tokens])) for tokens in (sequence, changed))
    assert torch.equal(first_TH[:15], second_TH[:15])
    assert not torch.allclose(first_TH[15:], second_TH[15:])


@pytest.mark.parametrize("name", ["qwen3, grouped heads, tied", "llama, one key head per query head, untied"])
def test_dense_and_fused_attention_in_bfloat16_differ_by_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, sequences = tiny_policy(name, dtype=torch.bfloat16), some_sequences(*LENGTHS)
    dense_TH = policy.packed_hidden(*packed(sequences))
    dense = gradients(policy, dense_TH)
    monkeypatch.setattr(attention, "_dense_is_faster", lambda *_: False)
    fused_TH = policy.packed_hidden(*packed(sequences))
    fused = gradients(policy, fused_TH)
    assert not torch.equal(dense_TH, fused_TH)  # otherwise both used the same kernel
    assert relative(dense_TH, fused_TH) < 0.03
    assert max(relative(dense[name], fused[name]) for name in fused) < 0.1


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_dense_and_single_query_attention_equal_the_definition_in_float64(kv_heads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(3, heads, 9, 8, generator=generator) for heads in (4, kv_heads, kv_heads))
    scale, groups = 0.3, 4 // kv_heads
    keys, values = (states.double().repeat_interleave(groups, 1) for states in (key, value))
    score = query.double() @ keys.transpose(-1, -2) * scale
    future = torch.ones(9, 9).triu(1).bool()
    expected = score.masked_fill(future, -torch.inf).softmax(-1) @ values
    dense = attention._dense(query, key, value, attention._causal_mask(query, key), attention.Scoring(scale=scale))
    torch.testing.assert_close(dense.double(), expected, rtol=1e-5, atol=1e-6)

    last = query[:, :, -1:]
    seen = torch.tensor([9, 4, 1])
    mask = torch.zeros(3, 1, 1, 9).masked_fill(torch.arange(9) >= seen[:, None, None, None], -torch.inf)
    probability = (score[:, :, -1:] + mask).softmax(-1)
    one_query, _ = attention.attend(torch.nn.Identity(), last, key, value, mask, scaling=scale)
    torch.testing.assert_close(one_query.double(), (probability @ values).transpose(1, 2), rtol=1e-5, atol=1e-6)


def relative(value: Tensor, other: Tensor) -> float:
    return ((value.float() - other.float()).norm() / other.float().norm()).item()


def test_attention_to_a_shared_prompt_equals_attention_to_a_copy_in_each_row() -> None:
    """Five rows: two of prompt 1, two of prompt 0 and one without; two key heads, two query heads each."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(5, *shape, generator=generator) for shape in ((4, 8), (2, 3, 8), (2, 3, 8)))
    prompt_key, prompt_value = (torch.randn(2, 2, 6, 8, generator=generator) for _ in range(2))
    length_R, prompt_B, length_B = torch.tensor([6, 4]), torch.tensor([1, 0, -1, 1, 0]), torch.tensor([3, 1, 2, 2, 3])

    cache = SlotCache(5, group_size=3)
    cache.resize(3)
    prefill = PrefillCache()
    prefill.layers_kv.append((prompt_key, prompt_value))
    none = torch.empty(0, dtype=torch.long)
    cache.write_prefill(none, none, prefill)
    cache.set_prompts(none, torch.arange(2), prefill)
    cache.begin_step(length_B - 1, prompt_B, torch.tensor([2, 0, 0, 0, 1]), position_bound=9)
    seen_B = torch.where(prompt_B >= 0, length_R[prompt_B], 0)
    seen_BX = torch.cat((torch.arange(6) < seen_B[:, None], torch.arange(3) < length_B[:, None]), 1)
    mask = torch.zeros(5, 9).masked_fill(~seen_BX, -torch.inf)[:, None, None]
    out = attention.attend_single_query(query, key, value, mask, attention.Scoring(scale=0.3), cache.shared_prompts(0))

    for row in range(5):
        shared = slice(0, int(seen_B[row]))
        keys, values = (
            torch.cat((prompts[prompt_B[row], :, shared], states[row, :, : length_B[row]]), 1)
            .double()
            .repeat_interleave(2, 0)
            for prompts, states in ((prompt_key, key), (prompt_value, value))
        )
        probability = (query[row, :, None].double() @ keys.transpose(-1, -2) * 0.3).softmax(-1)
        torch.testing.assert_close(out[row].double(), (probability @ values)[:, 0], rtol=1e-5, atol=1e-6)
