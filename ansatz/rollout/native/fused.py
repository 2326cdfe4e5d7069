"""The decode step of a model with Llama's layout, with kernels of our own.

Between two matrix products there is one kernel, and attention reads only the positions that a row sees. It rounds less
than the plain operations, so results agree within the rounding of the model's type and not bit for bit.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ansatz.models.load import Policy
from ansatz.rollout.native.cache import SlotCache
from ansatz.rollout.native.forward import RotaryTable


class FusedDecodeStep:
    """A `DecodeStep`. The weights are looked up at every call, because a cast replaces them.

    kernels: the module that has them: `kernels` on an NVIDIA GPU, `cpu_kernels` on a CPU.
    """

    def __init__(self, policy: Policy, kernels: Any) -> None:
        self.base, self.kernels = policy.model.base_model, kernels
        self._rotary = RotaryTable(self.base)

    def __call__(self, token_B: Tensor, position_B: Tensor, cache: SlotCache, mask_B11X: Tensor | None) -> Tensor:
        """Compute the last hidden states of one token per row.

        mask_B11X is not needed: `SlotCache.rows` says what each row sees.
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
            gated_BI = kernels.gate(layer.mlp.gate_proj(normed_BH), layer.mlp.up_proj(normed_BH))
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
            projection(normed_BH).unflatten(-1, (-1, attention.head_dim))
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
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
