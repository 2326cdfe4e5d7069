"""A static key/value cache of slots, spoken to through transformers' cache interface, and how many fit in memory.

Axes: S slots, B active rows (always slots 0..B-1), K key/value heads, P cached positions, D head size, L prompt length.
A row's token at position p lies at [slot, :, p]; what lies beyond a row's length is stale and masked by the caller.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from ansatz.models.load import Policy
from ansatz.models.packing import round_up

ROW_STEP, SPAN_STEP = 32, 32
"""Rows and spans are filled up to multiples of these, so that few shapes occur: kernels are compiled, and graphs
recorded, for each new one."""
_FOR_CACHE = 0.8
"""Share of a GPU's free memory that a full cache may take: a layer has its old and new tensors while it grows, and
prefills and logits need some."""


class PrefillCache(Cache):
    """Keeps each layer's keys and values of a prefill, [B, K, L, D], and lets attention see just these."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.layers_kv: list[tuple[Tensor, Tensor]] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.layers_kv.append((key_states, value_states))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return query_length, 0


class SlotCache(Cache):
    """The decode cache. `begin` says which rows and positions the next forward pass of one token a row works on.

    It holds just as many positions as the pass attends to, and grows in place of being sliced: a slice along positions
    is not contiguous, and a batched product would copy it at every step.
    """

    def __init__(self, num_slots: int) -> None:
        super().__init__(layers=[])
        self.num_slots = num_slots
        self.span = 0
        self._kv: list[tuple[Tensor, Tensor]] = []
        self.cell_BK = torch.empty(0, 0, dtype=torch.long)

    @property
    def num_heads(self) -> int:
        """Key/value heads of a layer."""
        return self._kv[0][0].shape[1]

    def fit(self, span: int) -> None:
        """Hold `span` positions, or up to twice as many where it has held more."""
        if span <= self.span <= 2 * span:
            return
        kept = min(span, self.span)
        self.span = span
        for layer, pair in enumerate(self._kv):
            wider = tuple(old.new_zeros(*old.shape[:2], span, old.shape[3]) for old in pair)
            for new, old in zip(wider, pair, strict=True):
                new[:, :, :kept] = old[:, :, :kept]
            self._kv[layer] = (wider[0], wider[1])

    def fill(self, slot_B: Tensor, source_B: Tensor, prefill: PrefillCache) -> None:
        """Copy row source_B[i] of a prefill into slot_B[i]; its length must be within the span."""
        if not self._kv:
            for key, value in prefill.layers_kv:
                shape = (self.num_slots, key.shape[1], self.span, key.shape[3])
                self._kv.append((key.new_zeros(shape), value.new_zeros(shape)))
        for (key_SKPD, value_SKPD), (key_BKLD, value_BKLD) in zip(self._kv, prefill.layers_kv, strict=True):
            length = key_BKLD.shape[2]
            key_SKPD[slot_B, :, :length] = key_BKLD[source_B]
            value_SKPD[slot_B, :, :length] = value_BKLD[source_B]

    def move(self, source_M: Tensor, target_M: Tensor, length: int) -> None:
        """Move slots (the first `length` positions of each) into holes left by finished rows."""
        for key_SKPD, value_SKPD in self._kv:
            key_SKPD[target_M, :, :length] = key_SKPD[source_M, :, :length]
            value_SKPD[target_M, :, :length] = value_SKPD[source_M, :, :length]

    def begin(self, position_B: Tensor) -> None:
        """The next token of row b goes to position_B[b]; attention sees all positions held."""
        row_B = torch.arange(len(position_B), device=position_B.device)
        head_K = torch.arange(self.num_heads, device=position_B.device)
        self.cell_BK = (row_B[:, None] * self.num_heads + head_K) * self.span + position_B[:, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        return self.write(layer_idx, key_states[:, :, 0], value_states[:, :, 0])

    def write(self, layer: int, key_BKD: Tensor, value_BKD: Tensor) -> tuple[Tensor, Tensor]:
        """Put a token a row where `begin` said; returns what its attention sees, two times [B, K, P, D]."""
        cell_C = self.cell_BK.flatten()
        for kept_SKPD, new_BKD in zip(self._kv[layer], (key_BKD, value_BKD), strict=True):
            kept_SKPD.flatten(0, 2).index_copy_(0, cell_C, new_BKD.flatten(0, 1))
        key_SKPD, value_SKPD = self._kv[layer]
        active = len(self.cell_BK)
        return key_SKPD[:active], value_SKPD[:active]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.span - 1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.span, 0


@torch.inference_mode()
def token_bytes(policy: Policy) -> int:
    """What the cache keeps of one token, of all layers."""
    token_11 = torch.zeros(1, 1, dtype=torch.long, device=policy.device)
    prefill = PrefillCache()
    policy.hidden(token_11, token_11, past_key_values=prefill, use_cache=True)
    return sum(kept.nbytes for pair in prefill.layers_kv for kept in pair)


def slots_that_fit(free_bytes: int, token_bytes: int, span: int, *, asked: int = 0) -> int:
    """Rows of `span` positions that fit, at most as many as were asked for (0: no bound); whole blocks of rows where
    there are any, since rows are filled up to these."""
    fit = max(1, int(free_bytes * _FOR_CACHE) // (token_bytes * round_up(span, SPAN_STEP)))
    fit = fit // ROW_STEP * ROW_STEP or fit
    return min(fit, asked) if asked else fit


def free_bytes(device: torch.device) -> int:
    """Of a GPU: what is free and what torch holds of it without use."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
