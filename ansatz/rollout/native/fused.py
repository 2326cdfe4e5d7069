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
from ansatz.rollout.native.cache import ROW_STEP, SlotCache
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

    def __call__(self, token_B: Tensor, position_B: Tensor, cache: SlotCache, mask_B11X: Tensor | None) -> Tensor:
        """Compute the last hidden states of one token per row. mask_B11X is not needed, as for `FusedDecodeStep`."""
        base, rows = self.base, cache.rows
        embedding_VH, first = base.embed_tokens.weight, base.layers[0]
        out_BH = embedding_VH.new_empty(len(token_B), embedding_VH.shape[1])
        rotation = self._rotary.tables(cache.position_bound, embedding_VH)
        layers = [_tensors_of(layer, cache, index) for index, layer in enumerate(base.layers)]
        places = token_B, position_B, rows.place_B, rows.prompt_B, rows.shared_B
        _, heads, span, head = cache.stored(0)[0].shape
        columns = (cache.stored_prompts(0) or cache.stored(0))[0].shape[2]
        attention = first.self_attn
        sizes = len(token_B), len(layers), out_BH.shape[1], heads, attention.q_proj.out_features // (heads * head), head
        is_packed = panels_of(first.self_attn.q_proj) is not None
        blocks = (0, 0) if is_packed else blocks_of(self.policy)
        share = -(-len(token_B) // torch.get_num_threads()) if self._is_small else 0
        cpu_kernels.decode(
            layers,
            (embedding_VH, base.norm.weight, *rotation, *places, out_BH),
            (base.norm.variance_epsilon, attention.q_norm.variance_epsilon if hasattr(attention, "q_norm") else 0.0),
            attention.scaling,
            (*sizes, first.mlp.gate_proj.out_features, span, columns, *blocks),
            share=share if is_packed else round_up(share, ROW_STEP),
        )
        return out_BH


def _tensors_of(layer: Any, cache: SlotCache, index: int) -> list[Tensor | None]:
    """Return a layer's weights and its caches, in the order of the struct `Layer` of `cpu_kernels.cpp`."""
    attention, mlp, stored = layer.self_attn, layer.mlp, cache.stored(index)
    norms = [getattr(getattr(attention, name, None), "weight", None) for name in ("q_norm", "k_norm")]
    projections = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    mlps = [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    return [
        layer.input_layernorm.weight,
        *(each for linear in projections for each in (linear.weight, linear.bias, panels_of(linear))),
        *(*norms, layer.post_attention_layernorm.weight),
        *(each for linear in mlps for each in (linear.weight, linear.bias, panels_of(linear))),
        *(*stored, *(cache.stored_prompts(index) or stored)),
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
