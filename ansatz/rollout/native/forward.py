"""The forward pass of a decode step: transformers' own, or a faster one for models with Llama's layout.

Two more, with kernels of our own for GPU and CPU, are in `native.fused`. `native.step_choice` chooses one of the four,
after it has compared it with these.

Axes: B rows, H hidden, Q query heads, K key/value heads, S heads of both kinds, D head size, L cached positions, X
positions under a mask (`native.cache`), P positions of a rotary table, I intermediate. Decoding a small model is bound
by the number of operations, not by their arithmetic. The fast path needs a third of transformers' operations and gives
the same bits. On a GPU, a CUDA graph launches all operations of a step at once. It is captured once per shape, then
replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ansatz.models.attention import Scoring, attend_single_query
from ansatz.models.load import Policy
from ansatz.rollout.native.cache import SlotCache

DecodeStep = Callable[[Tensor, Tensor, SlotCache, Tensor | None], Tensor]
"""(token_B, position_B, cache, mask_B11X) -> last hidden states [B, H]. `SlotCache.begin_step` has set the positions
that the cache writes."""
Work = Callable[[], None]
Capture = Callable[[Work], Work]
"""Does the work, captures it, and returns a function that does it again on the same memory."""


class ReferenceDecodeStep:
    """Any model, by its own forward pass."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __call__(self, token_B: Tensor, position_B: Tensor, cache: SlotCache, mask_B11X: Tensor | None) -> Tensor:
        hidden_B1H = self.policy.hidden(
            token_B[:, None],
            position_B[:, None],
            cache=cache,
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
        self._rotary = RotaryTable(self.base)

    def __call__(self, token_B: Tensor, position_B: Tensor, cache: SlotCache, mask_B11X: Tensor | None) -> Tensor:
        assert mask_B11X is not None, "the products of this path read all cached positions"
        base = self.base
        hidden_BH = nn.functional.embedding(token_B, base.embed_tokens.weight)
        cos_PD, sin_PD = self._rotary.tables(cache.position_bound, hidden_BH)
        cos_B1D, sin_B1D = cos_PD[position_B, None], sin_PD[position_B, None]
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


class RotaryTable:
    """Cosine and sine [P, D] of all positions. The first half of the sine is negated, so that rolling the two halves of
    a vector is enough to rotate it."""

    def __init__(self, base: Any) -> None:
        self.base = base
        self._cos_PD = self._sin_PD = torch.empty(0)

    def tables(self, num_positions: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tables of at least num_positions, in the type and on the device of `like`."""
        if len(self._cos_PD) < num_positions or self._cos_PD.dtype != like.dtype:
            position_1P = torch.arange(num_positions, device=like.device)[None]
            cos_1PD, sin_1PD = self.base.rotary_emb(like, position_1P)
            low_PD, high_PD = sin_1PD[0].chunk(2, -1)
            self._cos_PD, self._sin_PD = cos_1PD[0].contiguous(), torch.cat((-low_PD, high_PD), -1)
        return self._cos_PD, self._sin_PD


class StepGraph:
    """Runs the work of the decode steps of one `generate` call. While the shape stays the same, the tensors that the
    work reads and changes must not move.

    A shape is captured the second time in a row that it occurs. Few shapes occur, because rows and spans are rounded up
    to multiples.
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self._shape: tuple[int, ...] | None = None
        self._replay: Work | None = None

    def __call__(self, shape: tuple[int, ...], work: Work) -> None:
        if shape != self._shape:  # drop the old graph first: without this, both graphs hold memory at the same time
            self._shape, self._replay = shape, None
            work()
        elif self._replay is None:
            self._replay = self.capture(work)
        else:
            self._replay()


def capture_graph(work: Work) -> Work:
    """Do the work, and capture it as a CUDA graph.

    It is done on the graph's stream, because libraries initialise themselves when they are first used on a stream, and
    the capture itself does nothing. Other threads may use the GPU meanwhile, as the grader does for a learned reward.
    """
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        work()
    return graph.replay
