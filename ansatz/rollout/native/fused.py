"""The decode step of a model with Llama's layout, with kernels of our own.

Between two matrix products there is one kernel, and attention reads only the positions that a row sees. It rounds less
than the plain operations, so results agree within the rounding of the model's type and not bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ansatz.models.load import Policy
from ansatz.models.packing import round_up
from ansatz.models.threads import SMALL_MODEL
from ansatz.rollout.native import cpu_kernels
from ansatz.rollout.native.cache import ROW_STEP, SPAN_STEP, PrefillCache, SlotCache
from ansatz.rollout.native.equal_rows import blocks_of, panels_of
from ansatz.rollout.native.forward import RotaryTable

_ALIGNMENT = 256  # bytes


class FusedDecodeStep:
    """A `DecodeStep` on an NVIDIA GPU. The weights are looked up at every call, because a cast replaces them.

    kernels: the module of that name.
    """

    def __init__(self, policy: Policy, kernels: Any) -> None:
        self.base, self.kernels = policy.model.base_model, kernels
        self._rotary = RotaryTable(self.base)

    def __call__(self, token_B: Tensor, position_B: Tensor, cache: SlotCache, mask_B11X: Tensor | None) -> Tensor:
        """Compute the last hidden states of one token per row.

        mask_B11X is not needed: `SlotCache.rows` says which positions each row sees.
        """
        base, layers, kernels = self.base, self.base.layers, self.kernels
        hidden_BH = nn.functional.embedding(token_B, base.embed_tokens.weight)
        rotation = self._rotary.tables(cache.position_bound, hidden_BH)
        norms = [*(layer.input_layernorm for layer in layers[1:]), base.norm]
        first = layers[0].input_layernorm
        normed_BH = kernels.add_and_normalise(hidden_BH, None, first.weight, first.variance_epsilon)
        for index, (layer, next_norm) in enumerate(zip(layers, norms, strict=True)):
            out_BQD = self._attend(layer.self_attn, normed_BH, position_B, cache, index, rotation)
            delta_BH, norm = layer.self_attn.o_proj(out_BQD.flatten(1)), layer.post_attention_layernorm
            normed_BH = kernels.add_and_normalise(hidden_BH, delta_BH, norm.weight, norm.variance_epsilon)
            gated_BI = kernels.gate(*_products(normed_BH, (layer.mlp.gate_proj, layer.mlp.up_proj)))
            delta_BH = layer.mlp.down_proj(gated_BI)
            normed_BH = kernels.add_and_normalise(hidden_BH, delta_BH, next_norm.weight, next_norm.variance_epsilon)
        return normed_BH

    def _attend(
        self,
        attention: Any,
        normed_BH: Tensor,
        position_B: Tensor,
        cache: SlotCache,
        index: int,
        rotation: tuple[Tensor, Tensor],
    ) -> Tensor:
        query_BQD, key_BKD, value_BKD = (
            product.unflatten(-1, (-1, attention.head_dim))
            for product in _products(normed_BH, (attention.q_proj, attention.k_proj, attention.v_proj))
        )
        norms, epsilon = None, 0.0
        if hasattr(attention, "q_norm"):
            norms = attention.q_norm.weight, attention.k_norm.weight
            epsilon = attention.q_norm.variance_epsilon
        rows, stored = cache.rows, cache.stored(index)
        self.kernels.rotate_and_write(
            query_BQD, key_BKD, value_BKD, rotation, norms, epsilon, position_B, rows.place_B, stored
        )
        return self.kernels.attend(
            query_BQD,
            stored,
            cache.stored_prompts(index),
            place_B=rows.place_B,
            prompt_B=rows.prompt_B,
            shared_B=rows.shared_B,
            scale=attention.scaling,
        )


class CompiledDecodeStep:
    """A `DecodeStep` on a CPU, in one call of `cpu_kernels.cpp`.

    The operations of a small model are short, and threads that share each of them spend most of their time waiting for
    each other. Instead, each thread takes its share of the rows through all layers.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy, self.base = policy, policy.model.base_model
        self._rotary = RotaryTable(self.base)
        self._is_small = sum(each.numel() for each in policy.model.parameters()) < SMALL_MODEL
        self._has_long_operations = not self._is_small

    def __call__(self, token_B: Tensor, position_B: Tensor, cache: SlotCache, mask_B11X: Tensor | None) -> Tensor:
        """Compute the last hidden states of one token per row. mask_B11X is not needed, as for `FusedDecodeStep`."""
        rows, slot_B = cache.rows, torch.arange(len(token_B))
        places = token_B, position_B, slot_B, rows.place_B, rows.prompt_B, rows.shared_B
        stored = [
            (*cache.stored(index), *(cache.stored_prompts(index) or cache.stored(index)))
            for index in range(len(self.base.layers))
        ]
        share = -(-len(token_B) // torch.get_num_threads()) if self._is_small else 0
        return self._run(places, stored, share=share, position_bound=cache.position_bound)

    @property
    def prefills(self) -> bool:
        """Tell whether `prefill` can be used: weights are packed, and operations are long enough for all threads."""
        return self._has_long_operations and panels_of(self.base.layers[0].self_attn.q_proj) is not None

    def prefill(self, contexts: Sequence[Sequence[int]]) -> tuple[Tensor, PrefillCache]:
        """Compute the last hidden state of each context [R, H], and all keys and values, without padding."""
        length_R = torch.tensor([len(context) for context in contexts])
        token_B = torch.tensor([token for context in contexts for token in context])
        slot_B = torch.arange(len(contexts)).repeat_interleave(length_R)
        end_R = length_R.cumsum(0)
        position_B = torch.arange(len(token_B)) - (end_R - length_R)[slot_B]
        prefill, attention = PrefillCache(), self.base.layers[0].self_attn
        shape = len(contexts), attention.k_proj.out_features // attention.head_dim
        shape = *shape, round_up(int(length_R.max()), SPAN_STEP), attention.head_dim
        weight = self.base.embed_tokens.weight
        prefill.layers_kv = [(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in self.base.layers]
        places = token_B, position_B, slot_B, position_B, torch.full_like(slot_B, -1), torch.zeros_like(slot_B)
        stored = [(*pair, *pair) for pair in prefill.layers_kv]
        hidden_BH = self._run(places, stored, share=0, position_bound=shape[2])
        return hidden_BH[end_R - 1], prefill

    def _run(
        self, places: Sequence[Tensor], stored: Sequence[Sequence[Tensor]], *, share: int, position_bound: int
    ) -> Tensor:
        """Compute the last hidden states [B, H]. places: the tokens and what `Step` of `cpu_kernels.cpp` says about
        them. stored: of each layer the keys and values of the slots, and those of the shared prompts."""
        base, rows = self.base, len(places[0])
        embedding_VH, first = base.embed_tokens.weight, base.layers[0]
        out_BH = embedding_VH.new_empty(rows, embedding_VH.shape[1])
        rotation = self._rotary.tables(position_bound, embedding_VH)
        layers = [_tensors_of(layer, pairs) for layer, pairs in zip(base.layers, stored, strict=True)]
        _, heads, span, head = stored[0][0].shape
        columns, attention = stored[0][2].shape[2], first.self_attn
        sizes = rows, len(layers), out_BH.shape[1], heads, attention.q_proj.out_features // (heads * head), head
        is_packed = panels_of(first.self_attn.q_proj) is not None
        blocks = (0, 0) if is_packed else blocks_of(self.policy)
        cpu_kernels.decode(
            layers,
            (embedding_VH, base.norm.weight, *rotation, *places, out_BH),
            (base.norm.variance_epsilon, attention.q_norm.variance_epsilon if hasattr(attention, "q_norm") else 0.0),
            attention.scaling,
            (*sizes, first.mlp.gate_proj.out_features, span, columns, *blocks),
            share=share if is_packed else round_up(share, ROW_STEP),
        )
        return out_BH


def _tensors_of(layer: Any, stored: Sequence[Tensor]) -> list[Tensor | None]:
    """Return a layer's weights and its caches, in the order of the struct `Layer` of `cpu_kernels.cpp`."""
    attention, mlp = layer.self_attn, layer.mlp
    norms = [getattr(getattr(attention, name, None), "weight", None) for name in ("q_norm", "k_norm")]
    projections = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    mlps = [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    return [
        layer.input_layernorm.weight,
        *(each for linear in projections for each in (linear.weight, linear.bias, panels_of(linear))),
        *(*norms, layer.post_attention_layernorm.weight),
        *(each for linear in mlps for each in (linear.weight, linear.bias, panels_of(linear))),
        *stored,
    ]


def _products(normed_BH: Tensor, linears: Sequence[nn.Linear]) -> Sequence[Tensor]:
    """Compute linear layers of one input in one product, because the small ones leave most of a GPU idle."""
    biases = [linear.bias for linear in linears if linear.bias is not None]
    if len(biases) in (0, len(linears)):
        weight = _join([linear.weight for linear in linears])
        bias = _join(biases) if biases else None
        if weight is not None and (bias is None) == (not biases):
            return nn.functional.linear(normed_BH, weight, bias).split([len(linear.weight) for linear in linears], -1)
    return [linear(normed_BH) for linear in linears]


def _join(parts: Sequence[Tensor]) -> Tensor | None:
    """Return parameters as one tensor, without a copy: they become neighbours in memory, and stay so while they are
    changed in place.

    None if one of them would begin at an odd place, where training could round in another way than before.
    """
    if any(part.nbytes % _ALIGNMENT for part in parts):
        return None
    first, storages = parts[0], {part.untyped_storage().data_ptr() for part in parts}
    ends = [part.data_ptr() + part.nbytes for part in parts]
    if len(storages) > 1 or ends[:-1] != [part.data_ptr() for part in parts[1:]]:
        with torch.inference_mode(False), torch.no_grad():
            whole = torch.cat([part.detach() for part in parts])
            for part, place in zip(parts, whole.split([len(part) for part in parts]), strict=True):
                part.data = place
    shape = sum(len(part) for part in parts), *first.shape[1:]
    return first.detach().as_strided(shape, first.stride(), first.storage_offset())
