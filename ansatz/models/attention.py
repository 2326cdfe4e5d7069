"""One attention function for prefill, decode and training, plugged into transformers by its attention interface.

Axes: B rows, Q query heads, K key/value heads, G = Q/K query heads a key/value head, D head size, L length of a row,
T flat tokens. Decode has one query a row: two batched matrix products over the cache as it lies, grouped by key/value
head, so no head is repeated and nothing of the cache is copied; a prompt that rows share is read once. Training has one
flat row of many segments: only here are they laid out as rows, so no other layer computes on padding. All else is
transformers' own path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from ansatz.models.packing import PackedInputs, PaddedLayout, SharedPromptLayout, gather

NAME = "ansatz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A layer's keys and values of R prompts, [R, K, C, D], each with M places for rows that share it.

    pair_P: which of the B x K pairs of row and key/value head asks in each of the R x K x M places; place_P: the place
    of each pair. alone_B: rows without a prompt here, whose places are those of others.
    """

    key_RKCD: Tensor
    value_RKCD: Tensor
    pair_P: Tensor
    place_P: Tensor
    alone_B: Tensor

    def scores(self, query_BKGD: Tensor) -> Tensor:
        """[B, K, G, C]; of rows alone, those of another row."""
        return self._back(self._places(query_BKGD) @ self.key_RKCD.transpose(-1, -2), query_BKGD)

    def values(self, share_BKGC: Tensor) -> Tensor:
        """[B, K, G, D]."""
        values_BKGD = self._back(self._places(share_BKGC) @ self.value_RKCD, share_BKGC)
        return values_BKGD.masked_fill_(self.alone_B[:, None, None, None], 0.0)

    def _places(self, value_BKGX: Tensor) -> Tensor:
        """[R, K, M x G, X]."""
        prompts, heads = self.key_RKCD.shape[:2]
        placed = value_BKGX.flatten(0, 1).index_select(0, self.pair_P)
        return placed.view(prompts, heads, -1, value_BKGX.shape[-1])

    def _back(self, value_RKMX: Tensor, like_BKG: Tensor) -> Tensor:
        rows, heads, groups, _ = like_BKG.shape
        size = value_RKMX.shape[-1]
        return value_RKMX.view(-1, groups * size).index_select(0, self.place_P).view(rows, heads, groups, size)


def attend(
    module: nn.Module,
    query_BQLD: Tensor,
    key_BKLD: Tensor,
    value_BKLD: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    packed: PackedInputs | None = None,
    shared: Callable[[int], Shared | None] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """[B, L, Q, D]: causal within each row of a packing; one query a row with an additive mask; otherwise sdpa's."""
    length, head_dim = query_BQLD.shape[2:]
    scale = head_dim**-0.5 if scaling is None else scaling
    if packed is not None:
        dense = not dropout and _dense_pays(query_BQLD, packed.whole)
        if dense and packed.apart:
            return _attend_apart(query_BQLD, key_BKLD, value_BKLD, packed.apart, scale=scale), None
        query, key, value = (packed.whole.spread(value) for value in (query_BQLD, key_BKLD, value_BKLD))
        if dense:
            out_BLQD = _dense(query, key, value, _future(query, key), scale=scale)
        else:
            out_BLQD, _ = sdpa_attention_forward(
                module, query, key, value, None, scaling=scaling, dropout=dropout, is_causal=True
            )
        return gather(out_BLQD.flatten(0, 1), packed.whole.cell_C, length), None
    if length != 1 or attention_mask is None:
        return sdpa_attention_forward(
            module, query_BQLD, key_BKLD, value_BKLD, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
    of_layer = shared(module.layer_idx) if shared else None  # pyright: ignore[reportArgumentType]
    return attend_one(query_BQLD[:, :, 0], key_BKLD, value_BKLD, attention_mask, scale, of_layer)[:, None], None


def attend_one(
    query_BQD: Tensor,
    key_BKLD: Tensor,
    value_BKLD: Tensor,
    mask_B11X: Tensor,
    scale: float,
    shared: Shared | None = None,
) -> Tensor:
    """[B, Q, D]: one query a row over what it shares, if anything, and then over its own; X = C + L positions.

    mask: additive, of 0 and -inf.
    """
    query_BKGD = query_BQD.unflatten(1, (key_BKLD.shape[1], -1)) * scale
    score_BKGX = query_BKGD @ key_BKLD.transpose(-1, -2)
    if shared is None:
        share_BKGL = score_BKGX.add_(mask_B11X.to(score_BKGX.dtype)).softmax(-1)
        return (share_BKGL @ value_BKLD).flatten(1, 2)
    score_BKGX = torch.cat((shared.scores(query_BKGD), score_BKGX), -1)
    share_BKGX = score_BKGX.add_(mask_B11X.to(score_BKGX.dtype)).softmax(-1)
    columns = shared.key_RKCD.shape[2]
    out_BKGD = share_BKGX[..., columns:] @ value_BKLD
    return out_BKGD.add_(shared.values(share_BKGX[..., :columns])).flatten(1, 2)


def _dense_pays(query_1QTD: Tensor, whole: PaddedLayout) -> bool:
    """On a CPU in bfloat16 the fused kernel's backward pass takes five times as long as plain matrix products, while
    the scores (two bytes each) stay small."""
    on_cpu_bf16 = query_1QTD.device.type == "cpu" and query_1QTD.dtype == torch.bfloat16
    return on_cpu_bf16 and whole.num_rows * query_1QTD.shape[1] * whole.num_columns**2 <= 2**26


def _attend_apart(
    query_1QTD: Tensor, key_1KTD: Tensor, value_1KTD: Tensor, apart: SharedPromptLayout, *, scale: float
) -> Tensor:
    """[1, T, Q, D]: prompts among themselves, then responses, so that a shared prompt asks once and not in each row."""
    query, key, value = (apart.prompts.spread(one) for one in (query_1QTD, key_1KTD, value_1KTD))
    prompt_RLQD = _dense(query, key, value, _future(query, key), scale=scale)
    query, key, value = apart.responses.spread(query_1QTD), apart.keys.spread(key_1KTD), apart.keys.spread(value_1KTD)
    column_C = torch.arange(key.shape[2], device=key.device)
    before_NC = torch.zeros(len(key), len(column_C), dtype=key.dtype, device=key.device)
    before_NC.masked_fill_(column_C < apart.start_N[:, None], -torch.inf)
    mask_NLC = before_NC[:, None] + _future(query, key)
    response_NLQD = _dense(query, key, value, mask_NLC[:, None, None], scale=scale)
    cells = torch.cat((prompt_RLQD.flatten(0, 1), response_NLQD.flatten(0, 1)))
    return gather(cells, apart.cell_C, query_1QTD.shape[2])


def _future(query_BQLD: Tensor, key_BKCD: Tensor) -> Tensor:
    """[L, C]: -inf where a key comes after the query, 0 elsewhere; the last query is at the last key."""
    length, columns = query_BQLD.shape[2], key_BKCD.shape[2]
    full_LC = torch.full((length, columns), -torch.inf, dtype=query_BQLD.dtype, device=query_BQLD.device)
    return full_LC.triu(columns - length + 1)


def _dense(query_BQLD: Tensor, key_BKCD: Tensor, value_BKCD: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    """Attention [B, L, Q, D] by two batched products, query heads grouped under their key/value head.

    mask: of 0 and -inf, broadcast over [B, K, G, L, C].
    """
    rows, query_heads, length, head_dim = query_BQLD.shape
    grouped_BKMD = (query_BQLD * scale).reshape(rows, key_BKCD.shape[1], -1, head_dim)  # M = G x L
    score_BKMC = grouped_BKMD @ key_BKCD.transpose(-1, -2)
    share_BKGLC = (score_BKMC.unflatten(2, (-1, length)) + mask).softmax(-1)
    out_BKMD = share_BKGLC.view(score_BKMC.shape) @ value_BKCD
    return out_BKMD.view(rows, query_heads, length, head_dim).transpose(1, 2)


def use(model: Any) -> None:
    """Make the model attend by `attend`."""
    if NAME not in AttentionInterface().valid_keys():
        AttentionInterface.register(NAME, attend)
        AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model.set_attn_implementation(NAME)
