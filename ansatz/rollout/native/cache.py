"""The key/value cache of the decoding slots, behind transformers' cache interface, and the slots that fit in memory.

Axes: S slots, B active rows (always slots 0..B-1), K key/value heads, P cached positions, D head size, L prompt length,
R prompts shared by several rows, C their columns, M moved rows. Token p of a row is stored at [slot, :, p]. If the row
shares a prompt, p counts from the end of that prompt. Cells beyond a row's length hold stale values, which the caller
masks. X are the positions under that mask: the columns of shared prompts, then the columns of the slot. In `begin_step`
C are cells, and P places: R x K x group_size, one for each row that shares a prompt and each head (`SharedPrompts`).

Transformers' models call `update`, `get_seq_length` and `get_mask_sizes` of both caches. They are given the positions,
and in a decode step the mask, so the results of the last two only need to fit the shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import Cache

from ansatz.models.attention import SharedPrompts
from ansatz.models.packing import round_up

ROW_STEP, SPAN_STEP = 32, 32
"""Rows and spans (positions per slot) are rounded up to multiples of these, so that few shapes occur: every new shape
compiles kernels and captures a graph."""
_CACHE_FRACTION = 0.8
"""Fraction of a GPU's free memory that a full cache may take. While a layer grows, its old and new tensors exist at
the same time, and prefills and logits need memory too."""


class PrefillCache(Cache):
    """Stores each layer's keys and values of a prefill, [B, K, L, D]. Attention sees only these."""

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


class RowPlaces(NamedTuple):
    """The positions that each row sees in a decode step, for `native.fused`.

    place_B: where its token is written in the row's own slot, so it sees place + 1 positions there. prompt_B: the
    shared prompt, -1 for none. shared_B: the number of positions of that prompt that it sees.
    """

    place_B: Tensor
    prompt_B: Tensor
    shared_B: Tensor


class SlotCache(Cache):
    """The decode cache. `begin_step` sets the rows and positions of the next forward pass of one token per row.

    A pass attends to all positions of the cache, under a mask. The cache holds the positions that the longest row
    needs, or up to twice as many (`resize`). A larger cache could be sliced along positions instead, but the slice is
    not contiguous, so every batched product would copy it.

    group_size: the largest number of rows that share a prompt.
    least_span: least number of positions, so that a step that reads only the positions it needs has fixed memory.
    rows: see `RowPlaces`.
    reallocations: number of times that stored values have moved to other memory.
    position_bound: larger than every position of the current step, shared prompts included.
    window_mask: of layers with a sliding window in this step, [B, 1, 1, X]; None if there are none.
    """

    def __init__(self, num_slots: int, *, group_size: int = 1, least_span: int = 0) -> None:
        super().__init__(layers=[])
        self.num_slots, self.group_size, self.least_span = num_slots, group_size, least_span
        self.span = self.position_bound = self.reallocations = 0
        self._kv: list[tuple[Tensor, Tensor]] = []
        self._prompts: list[tuple[Tensor, Tensor]] = []
        empty = torch.empty(0, dtype=torch.long)
        self._cell_C = empty  # the cells that the step writes
        self._sharing: dict[str, Tensor] = {}
        """The fields of `SharedPrompts` that are the same in every layer."""
        self.window_mask: Tensor | None = None
        self.rows = RowPlaces(empty, empty, empty)

    @property
    def num_prompts(self) -> int:
        return len(self._prompts[0][0]) if self._prompts else 0

    @property
    def prompt_columns(self) -> int:
        """Number of positions stored of each shared prompt. Shorter prompts are padded to this length."""
        return self._prompts[0][0].shape[2] if self._prompts else 0

    def resize(self, span: int) -> None:
        """Hold `span` positions per slot. A larger cache of at most twice that size stays as it is."""
        span = max(span, self.least_span)
        if span <= self.span <= 2 * span:
            return
        kept = min(span, self.span)
        self.span = span
        self.reallocations += 1
        for layer, pair in enumerate(self._kv):
            resized = tuple(old.new_zeros(*old.shape[:2], span, old.shape[3]) for old in pair)
            for new, old in zip(resized, pair, strict=True):
                new[:, :, :kept] = old[:, :, :kept]
            self._kv[layer] = (resized[0], resized[1])

    def write_prefill(self, slot_B: Tensor, source_B: Tensor, prefill: PrefillCache) -> None:
        """Copy row source_B[i] of a prefill into slot_B[i]. The row must fit in the span."""
        if not self._kv:
            for key, value in prefill.layers_kv:  # a key and a value can have different sizes
                stored = (new.new_zeros(self.num_slots, new.shape[1], self.span, new.shape[3]) for new in (key, value))
                self._kv.append((next(stored), next(stored)))
        for (key_SKPD, value_SKPD), (key_BKLD, value_BKLD) in zip(self._kv, prefill.layers_kv, strict=True):
            length = min(key_BKLD.shape[2], self.span)  # rows that are not copied can be longer
            key_SKPD[slot_B, :, :length] = key_BKLD[source_B, :, :length]
            value_SKPD[slot_B, :, :length] = value_BKLD[source_B, :, :length]

    def set_prompts(self, kept_R: Tensor, source_R: Tensor, prefill: PrefillCache | None = None) -> None:
        """Keep the shared prompts kept_R, in this order, and append rows source_R of a prefill."""
        empty = [(pair[0][:0], pair[1][:0]) for pair in self._kv]
        before = self._prompts or empty
        added = empty if prefill is None else prefill.layers_kv
        self.reallocations += 1
        self._prompts = [
            (_concat_padded(old[0][kept_R], new[0][source_R]), _concat_padded(old[1][kept_R], new[1][source_R]))
            for old, new in zip(before, added, strict=True)
        ]

    def stored(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all slots, [S, K, P, D]."""
        return self._kv[layer]

    def stored_prompts(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """Return the keys and values of the shared prompts, [R, K, C, D]; None if there are none."""
        return self._prompts[layer] if self.num_prompts else None

    def shared_prompts(self, layer: int) -> SharedPrompts | None:
        if (prompts := self.stored_prompts(layer)) is None:
            return None
        return SharedPrompts(key_RKCD=prompts[0], value_RKCD=prompts[1], **self._sharing)

    def move(self, source_M: Tensor, target_M: Tensor, length: int) -> None:
        """Move the first `length` positions of slots source_M into slots target_M, which finished rows have left."""
        for key_SKPD, value_SKPD in self._kv:
            key_SKPD[target_M, :, :length] = key_SKPD[source_M, :, :length]
            value_SKPD[target_M, :, :length] = value_SKPD[source_M, :, :length]

    def copy_out(self, slot_M: Tensor, length: int) -> list[tuple[Tensor, Tensor]]:
        """Copy the first `length` keys and values of some slots into the host's memory, for each layer [M, K,
        length, D]."""
        return [(key[slot_M, :, :length].cpu(), value[slot_M, :, :length].cpu()) for key, value in self._kv]

    def copy_in(self, slot: int, layers_kv: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Write the result of `copy_out` for one slot, [K, length, D] for each layer, into a slot."""
        for stored, copied in zip(self._kv, layers_kv, strict=True):
            for stored_SKPD, copied_KLD in zip(stored, copied, strict=True):
                stored_SKPD[slot, :, : copied_KLD.shape[1]] = copied_KLD

    def begin_step(
        self,
        position_B: Tensor,
        prompt_B: Tensor,
        member_B: Tensor,
        *,
        position_bound: int,
        window_mask: Tensor | None = None,
    ) -> None:
        """Set where the next token of each row is written. Attention sees all positions of the cache.

        position_B: the position in the row's own slot. prompt_B: the shared prompt of the row, -1 for none.
        member_B: the row's index among the rows of that prompt.
        """
        heads, self.position_bound = self._kv[0][0].shape[1], position_bound
        row_B = torch.arange(len(position_B), device=position_B.device)
        head_K = torch.arange(heads, device=position_B.device)
        pair_BK = row_B[:, None] * heads + head_K
        cell_BK = pair_BK * self.span + position_B[:, None]
        place_BK = (prompt_B[:, None] * heads + head_K) * self.group_size + member_B[:, None]
        places = self.num_prompts * heads * self.group_size
        target_BK = torch.where(prompt_B[:, None] >= 0, place_BK, places)
        # Rows without a shared prompt write into one more place, which is cut off below.
        pair_P = torch.zeros(places + 1, dtype=torch.long, device=position_B.device)
        pair_P[target_BK.flatten()] = pair_BK.flatten()
        place_P = place_BK.flatten().clamp(0, max(places - 1, 0))
        self._sharing = {"pair_P": pair_P[:-1], "place_P": place_P, "unshared_B": prompt_B < 0}
        self._cell_C, self.window_mask = cell_BK.flatten(), window_mask

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        return self.write(layer_idx, key_states[:, :, 0], value_states[:, :, 0])

    def write(self, layer: int, key_BKD: Tensor, value_BKD: Tensor) -> tuple[Tensor, Tensor]:
        """Store one token per row, and return the keys and values that its attention sees, each [B, K, P, D]."""
        for stored_SKPD, new_BKD in zip(self._kv[layer], (key_BKD, value_BKD), strict=True):
            stored_SKPD.flatten(0, 2).index_copy_(0, self._cell_C, new_BKD.flatten(0, 1))
        key_SKPD, value_SKPD = self._kv[layer]
        return key_SKPD[: len(key_BKD)], value_SKPD[: len(key_BKD)]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.span - 1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.span, 0


def _concat_padded(old_RKCD: Tensor, new_RKLD: Tensor) -> Tensor:
    """Concatenate both along the first axis, with the shorter one padded to as many columns as the longer one."""
    columns = max(old_RKCD.shape[2] if len(old_RKCD) else 0, new_RKLD.shape[2] if len(new_RKLD) else 0)
    cut = (value[:, :, :columns] for value in (old_RKCD, new_RKLD))
    return torch.cat([nn.functional.pad(value, (0, 0, 0, columns - value.shape[2])) for value in cut])


def slots_that_fit(free_bytes: int, token_bytes: int, span: int, *, requested: int = 0) -> int:
    """Return the number of slots with `span` positions that fit in memory, at least 1 and at most `requested` (0: no
    bound).

    It is a multiple of ROW_STEP if that many fit, because rows are rounded up to such a multiple.
    """
    fitting = max(1, int(free_bytes * _CACHE_FRACTION) // (token_bytes * round_up(span, SPAN_STEP)))
    fitting = fitting // ROW_STEP * ROW_STEP or fitting
    return min(fitting, requested) if requested else fitting


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a GPU, including memory that torch has reserved and does not use."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
