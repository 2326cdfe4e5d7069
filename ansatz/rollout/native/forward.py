"""The forward pass of a decode step: transformers' own, or a faster one for models with Llama's layout.

Axes: B rows, H hidden, Q query heads, K key/value heads, D head size, L cached positions, I intermediate. Decoding a
small model is bound by the number of operations, not by their arithmetic. The fast path needs a third of transformers'
operations and gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ansatz.models import norm
from ansatz.models.attention import Scoring, attend_single_query
from ansatz.models.load import Policy
from ansatz.rollout.native.cache import PrefillCache, SlotCache

DecodeStep = Callable[[Tensor, Tensor, SlotCache, Tensor], Tensor]
"""(token_B, position_B, cache, mask_B11X) -> last hidden states [B, H]. `SlotCache.begin_step` has set the positions
that the cache writes."""

_NORMS = ("input_layernorm", "post_attention_layernorm")
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


def choose_decode_step(policy: Policy) -> DecodeStep:
    """The fast path if this model gives the same bits with it, otherwise the reference path."""
    reference = ReferenceDecodeStep(policy)
    if _has_llama_layout(policy.model.base_model):
        fast = FastDecodeStep(policy)
        if _probe(policy, fast).equal(_probe(policy, reference)):
            return fast
    return reference


class ReferenceDecodeStep:
    """Any model, by its own forward pass."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __call__(self, token_B: Tensor, position_B: Tensor, cache: SlotCache, mask_B11X: Tensor) -> Tensor:
        hidden_B1H = self.policy.hidden(
            token_B[:, None],
            position_B[:, None],
            past_key_values=cache,
            use_cache=True,
            attention_mask=mask_B11X,
            shared_prompts=cache.shared_prompts,
            window_mask=cache.window_mask,
        )
        return hidden_B1H[:, 0]


class FastDecodeStep:
    """A model with Llama's layout. The weights are looked up at every call, because a cast replaces them."""

    def __init__(self, policy: Policy) -> None:
        self.base = policy.model.base_model
        kinds = getattr(self.base.config, "layer_types", None)
        self._has_window = [
            policy.window is not None and (kinds is None or kinds[index] == "sliding_attention")
            for index in range(len(self.base.layers))
        ]
        self._cos_PD = self._sin_PD = torch.empty(0)

    def __call__(self, token_B: Tensor, position_B: Tensor, cache: SlotCache, mask_B11X: Tensor) -> Tensor:
        base = self.base
        hidden_BH = nn.functional.embedding(token_B, base.embed_tokens.weight)
        cos_B1D, sin_B1D = self._rotation(position_B, cache.position_bound, hidden_BH)
        for index, layer in enumerate(base.layers):
            attention, mlp = layer.self_attn, layer.mlp
            normed_BH = layer.input_layernorm(hidden_BH)
            query_BQD, key_BKD, value_BKD = (
                projection(normed_BH).unflatten(-1, (-1, attention.head_dim))
                for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            if hasattr(attention, "q_norm"):
                query_BQD, key_BKD = attention.q_norm(query_BQD), attention.k_norm(key_BKD)
            both_BSD = torch.cat((query_BQD, key_BKD), 1)
            both_BSD = (both_BSD * cos_B1D).add_(both_BSD.roll(attention.head_dim // 2, -1).mul_(sin_B1D))
            query_BQD, key_BKD = both_BSD.split((query_BQD.shape[1], key_BKD.shape[1]), 1)
            key_BKLD, value_BKLD = cache.write(index, key_BKD, value_BKD)
            window_mask = cache.window_mask if self._has_window[index] else None
            seen_B11X = mask_B11X if window_mask is None else window_mask
            scoring = Scoring(scale=attention.scaling)
            out_BQD = attend_single_query(
                query_BQD, key_BKLD, value_BKLD, seen_B11X, scoring, cache.shared_prompts(index)
            )
            hidden_BH = hidden_BH + attention.o_proj(out_BQD.flatten(1))
            normed_BH = layer.post_attention_layernorm(hidden_BH)
            gate_BI = nn.functional.silu(mlp.gate_proj(normed_BH)).mul_(mlp.up_proj(normed_BH))
            hidden_BH = hidden_BH + mlp.down_proj(gate_BI)
        return base.norm(hidden_BH)

    def _rotation(self, position_B: Tensor, position_bound: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine [B, 1, D] at each row's position. The first half of the sine is negated, so that rolling the
        two halves of a vector is enough to rotate it."""
        if len(self._cos_PD) < position_bound or self._cos_PD.dtype != like.dtype:
            position_1P = torch.arange(position_bound, device=like.device)[None]
            cos_1PD, sin_1PD = self.base.rotary_emb(like, position_1P)
            low_PD, high_PD = sin_1PD[0].chunk(2, -1)
            self._cos_PD, self._sin_PD = cos_1PD[0], torch.cat((-low_PD, high_PD), -1)
        return self._cos_PD[position_B, None], self._sin_PD[position_B, None]


def _has_llama_layout(base: Any) -> bool:
    """Whether a model has Llama's modules, each of the plain kind. How it combines them is left to `_probe`."""
    parts = (getattr(base, name, None) for name in ("embed_tokens", "layers", "norm", "rotary_emb"))
    if any(part is None for part in parts) or not norm.is_installed(base.norm):
        return False
    return all(_has_plain_modules(layer) for layer in base.layers)


def _has_plain_modules(layer: Any) -> bool:
    attention, mlp = getattr(layer, "self_attn", None), getattr(layer, "mlp", None)
    linears = [getattr(attention, name, None) for name in _ATTENTION] + [getattr(mlp, name, None) for name in _MLP]
    norms = [getattr(layer, name, None) for name in _NORMS]
    norms += [getattr(attention, name) for name in ("q_norm", "k_norm") if hasattr(attention, name)]
    return (
        all(type(linear) is nn.Linear for linear in linears)
        and all(norm.is_installed(module) for module in norms)
        and all(hasattr(attention, name) for name in ("head_dim", "scaling"))
    )


@torch.inference_mode()
def _probe(policy: Policy, step: DecodeStep) -> Tensor:
    """Last hidden states of the third and fourth token of two rows, decoded by this step."""
    device = policy.device
    token_B = torch.arange(2, device=device)
    prefill, cache = PrefillCache(), SlotCache(2)
    first_two_BL = torch.arange(2, device=device).expand(2, 2)
    policy.hidden(first_two_BL, first_two_BL, past_key_values=prefill, use_cache=True)
    cache.resize(4)
    cache.write_prefill(token_B, token_B, prefill)
    hidden_states = list[Tensor]()
    for position in (2, 3):
        position_B = torch.full_like(token_B, position)
        cache.begin_step(position_B, torch.full_like(token_B, -1), token_B, position_bound=4)
        mask_L = torch.zeros(4, device=device).masked_fill(torch.arange(4, device=device) > position, -torch.inf)
        hidden_states.append(step(token_B, position_B, cache, mask_L.expand(2, 1, 1, 4)))
    return torch.cat(hidden_states)
