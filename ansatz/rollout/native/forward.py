"""One token a row through the model: transformers' own way, or a shorter one for models that are built like Llama.

Axes: B rows, H hidden, Q query heads, K key/value heads, D head size, L cached positions. Decoding a small model is
bound by the number of operations, not by their arithmetic; the short way takes a third of transformers' and gives the
same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ansatz.models import norm
from ansatz.models.attention import attend_one
from ansatz.models.load import Policy
from ansatz.rollout.native.cache import PrefillCache, SlotCache

Step = Callable[[Tensor, Tensor, SlotCache, Tensor], Tensor]
"""(token_B, position_B, cache, mask_B11X) -> last hidden states [B, H]; the cache knows the positions (`begin`)."""

_NORMS = ("input_layernorm", "post_attention_layernorm")
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


def decode_step(policy: Policy) -> Step:
    """The shortest way through this model that gives what the model gives."""
    if _is_built_like_llama(policy.model.base_model):
        short, plain = FastDecodeStep(policy), ReferenceDecodeStep(policy)
        if _probe(policy, short).equal(_probe(policy, plain)):
            return short
    return ReferenceDecodeStep(policy)


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
            shared=cache.shared,
        )
        return hidden_B1H[:, 0]


class FastDecodeStep:
    """A model of `_is_built_like_llama`. Its weights are looked up anew each time, since a cast replaces them."""

    def __init__(self, policy: Policy) -> None:
        self.base = policy.model.base_model
        self._cos_PD = self._sin_PD = torch.empty(0)

    def __call__(self, token_B: Tensor, position_B: Tensor, cache: SlotCache, mask_B11X: Tensor) -> Tensor:
        base = self.base
        hidden_BH = nn.functional.embedding(token_B, base.embed_tokens.weight)
        cos_B1D, sin_B1D = self._rotation(position_B, cache.longest, hidden_BH)
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
            out_BQD = attend_one(query_BQD, key_BKLD, value_BKLD, mask_B11X, attention.scaling, cache.shared(index))
            hidden_BH = hidden_BH + attention.o_proj(out_BQD.flatten(1))
            normed_BH = layer.post_attention_layernorm(hidden_BH)
            gate_BI = nn.functional.silu(mlp.gate_proj(normed_BH)).mul_(mlp.up_proj(normed_BH))
            hidden_BH = hidden_BH + mlp.down_proj(gate_BI)
        return base.norm(hidden_BH)

    def _rotation(self, position_B: Tensor, longest: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine [B, 1, D] of the rows' positions; the sine's first half negated, so that a roll of the
        halves does for a rotation."""
        if len(self._cos_PD) < longest or self._cos_PD.dtype != like.dtype:
            position_1P = torch.arange(longest, device=like.device)[None]
            cos_1PD, sin_1PD = self.base.rotary_emb(like, position_1P)
            low_PD, high_PD = sin_1PD[0].chunk(2, -1)
            self._cos_PD, self._sin_PD = cos_1PD[0], torch.cat((-low_PD, high_PD), -1)
        return self._cos_PD[position_B, None], self._sin_PD[position_B, None]


def _is_built_like_llama(base: Any) -> bool:
    """Whether a model has Llama's parts, each of the plain kind; what it does with them is for a probe to show."""
    parts = (getattr(base, name, None) for name in ("embed_tokens", "layers", "norm", "rotary_emb"))
    if any(part is None for part in parts) or not norm.in_use(base.norm):
        return False
    return all(_is_plain(layer) for layer in base.layers)


def _is_plain(layer: Any) -> bool:
    attention, mlp = getattr(layer, "self_attn", None), getattr(layer, "mlp", None)
    linears = [getattr(attention, name, None) for name in _ATTENTION] + [getattr(mlp, name, None) for name in _MLP]
    norms = [getattr(layer, name, None) for name in _NORMS]
    norms += [getattr(attention, name) for name in ("q_norm", "k_norm") if hasattr(attention, name)]
    return (
        all(type(linear) is nn.Linear for linear in linears)
        and all(norm.in_use(one) for one in norms)
        and all(hasattr(attention, name) for name in ("head_dim", "scaling"))
    )


@torch.inference_mode()
def _probe(policy: Policy, step: Step) -> Tensor:
    """Hidden states of two rows' third and fourth tokens."""
    device = policy.device
    token_B = torch.arange(2, device=device)
    prefill, cache = PrefillCache(), SlotCache(2)
    two_BL = torch.arange(2, device=device).expand(2, 2)
    policy.hidden(two_BL, two_BL, past_key_values=prefill, use_cache=True)
    cache.fit(4)
    cache.fill(token_B, token_B, prefill)
    out = list[Tensor]()
    for position in (2, 3):
        position_B = torch.full_like(token_B, position)
        cache.begin(position_B, torch.full_like(token_B, -1), token_B, longest=4)
        mask_L = torch.zeros(4, device=device).masked_fill(torch.arange(4, device=device) > position, -torch.inf)
        out.append(step(token_B, position_B, cache, mask_L.expand(2, 1, 1, 4)))
    return torch.cat(out)
