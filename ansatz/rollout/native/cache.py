"""A static key/value cache of slots, spoken to through transformers' cache interface, and how many fit in memory.

Axes: S slots, B active rows (always slots 0..B-1), K key/value heads, P cached positions, D head size, L prompt length,
R prompts that several rows share. A row's own token p lies at [slot, :, p], after its shared prompt if it has one; what
lies beyond a row's length is stale and masked by the caller.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import Cache

from ansatz.models.attention import Shared
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


class WriteIndex(NamedTuple):
    """Of one forward pass: the cells that are written, and the rest as in `Shared`."""

    cell_C: Tensor
    pair_P: Tensor
    place_P: Tensor
    alone_B: Tensor


class SlotCache(Cache):
    """The decode cache. `begin` says which rows and positions the next forward pass of one token a row works on.

    It holds just as many positions as the pass attends to, and grows in place of being sliced: a slice along positions
    is not contiguous, and a batched product would copy it at every step.

    members: rows that a prompt is shared by, at most. moves: how often what is held has gone to other memory.
    """

    def __init__(self, num_slots: int, *, members: int = 1) -> None:
        super().__init__(layers=[])
        self.num_slots, self.members = num_slots, members
        self.span = self.longest = self.moves = 0
        self._kv: list[tuple[Tensor, Tensor]] = []
        self._prompts: list[tuple[Tensor, Tensor]] = []
        none = torch.empty(0, dtype=torch.long)
        self.where = WriteIndex(none, none, none, none)

    @property
    def num_heads(self) -> int:
        """Key/value heads of a layer."""
        return self._kv[0][0].shape[1]

    @property
    def num_prompts(self) -> int:
        return len(self._prompts[0][0]) if self._prompts else 0

    @property
    def prompt_columns(self) -> int:
        """Positions held of each shared prompt; shorter ones are filled up."""
        return self._prompts[0][0].shape[2] if self._prompts else 0

    def fit(self, span: int) -> None:
        """Hold `span` positions, or up to twice as many where it has held more."""
        if span <= self.span <= 2 * span:
            return
        kept = min(span, self.span)
        self.span = span
        self.moves += 1
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
            length = min(key_BKLD.shape[2], self.span)  # other rows of the prefill may be longer
            key_SKPD[slot_B, :, :length] = key_BKLD[source_B, :, :length]
            value_SKPD[slot_B, :, :length] = value_BKLD[source_B, :, :length]

    def share(self, kept_R: Tensor, source_R: Tensor, prefill: PrefillCache | None = None) -> None:
        """Hold prompts kept_R of those held, in this order, and after them rows source_R of a prefill."""
        empty = [(pair[0][:0], pair[1][:0]) for pair in self._kv]
        before = self._prompts or empty
        added = empty if prefill is None else prefill.layers_kv
        self.moves += 1
        self._prompts = [
            (_joined(old[0][kept_R], new[0][source_R]), _joined(old[1][kept_R], new[1][source_R]))
            for old, new in zip(before, added, strict=True)
        ]

    def shared(self, layer: int) -> Shared | None:
        if not self.num_prompts:
            return None
        key_RKCD, value_RKCD = self._prompts[layer]
        return Shared(
            key_RKCD=key_RKCD,
            value_RKCD=value_RKCD,
            pair_P=self.where.pair_P,
            place_P=self.where.place_P,
            alone_B=self.where.alone_B,
        )

    def move(self, source_M: Tensor, target_M: Tensor, length: int) -> None:
        """Move slots (the first `length` positions of each) into holes left by finished rows."""
        for key_SKPD, value_SKPD in self._kv:
            key_SKPD[target_M, :, :length] = key_SKPD[source_M, :, :length]
            value_SKPD[target_M, :, :length] = value_SKPD[source_M, :, :length]

    def begin(self, position_B: Tensor, prompt_B: Tensor, member_B: Tensor, *, longest: int) -> None:
        """The next token of row b goes to its own position_B[b]; attention sees all positions held. prompt_B: which
        prompt a row shares, -1 for none, as member_B[b] of its rows. longest: above every position, prompts counted."""
        heads, self.longest = self.num_heads, longest
        row_B = torch.arange(len(position_B), device=position_B.device)
        head_K = torch.arange(heads, device=position_B.device)
        pair_BK = row_B[:, None] * heads + head_K
        cell_BK = pair_BK * self.span + position_B[:, None]
        place_BK = (prompt_B[:, None] * heads + head_K) * self.members + member_B[:, None]
        places = self.num_prompts * heads * self.members
        target_BK = torch.where(prompt_B[:, None] >= 0, place_BK, places)
        pair_P = torch.zeros(places + 1, dtype=torch.long, device=position_B.device)
        pair_P[target_BK.flatten()] = pair_BK.flatten()
        place_P = place_BK.flatten().clamp(0, max(places - 1, 0))
        self.where = WriteIndex(cell_BK.flatten(), pair_P[:-1], place_P, prompt_B < 0)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        return self.write(layer_idx, key_states[:, :, 0], value_states[:, :, 0])

    def write(self, layer: int, key_BKD: Tensor, value_BKD: Tensor) -> tuple[Tensor, Tensor]:
        """Put a token a row where `begin` said; returns what its attention sees, two times [B, K, P, D]."""
        for kept_SKPD, new_BKD in zip(self._kv[layer], (key_BKD, value_BKD), strict=True):
            kept_SKPD.flatten(0, 2).index_copy_(0, self.where.cell_C, new_BKD.flatten(0, 1))
        key_SKPD, value_SKPD = self._kv[layer]
        return key_SKPD[: len(key_BKD)], value_SKPD[: len(key_BKD)]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.span - 1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.span, 0


def _joined(old_RKCD: Tensor, new_RKLD: Tensor) -> Tensor:
    """One after the other, the shorter filled up."""
    columns = max(old_RKCD.shape[2] if len(old_RKCD) else 0, new_RKLD.shape[2] if len(new_RKLD) else 0)
    both = (one[:, :, :columns] for one in (old_RKCD, new_RKLD))
    return torch.cat([nn.functional.pad(one, (0, 0, 0, columns - one.shape[2])) for one in both])


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
