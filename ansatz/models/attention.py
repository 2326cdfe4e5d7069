"""One attention function for prefill, decode and training, plugged into transformers by its attention interface.

Axes: B rows, Q query heads, K key/value heads, G = Q/K query heads a key/value head, D head size, L length of a row,
T flat tokens. Decode has one query a row: two batched matrix products over the cache as it lies, grouped by key/value
head, so no head is repeated and nothing of the cache is copied. Training has one flat row of many segments: only here
are they laid out as rows, so no other layer computes on padding. All else is transformers' own path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

NAME = "ansatz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Where flat tokens stand in num_rows x num_columns rows. cell_T: row * num_columns + column, of each token.

    A token may stand in several rows, as a prompt that a group shares: copy_K are further cells, and copied_K the flat
    tokens in them. Flat tokens past len(cell_T) are fill that stands nowhere; their attention output is 0.
    """

    cell_T: Tensor
    copy_K: Tensor
    copied_K: Tensor
    num_rows: int
    num_columns: int

    def spread(self, value_1HTD: Tensor) -> Tensor:
        """[1, H, T, D] as rows [B, H, L, D], 0 where there is no token."""
        value_THD = value_1HTD[0].transpose(0, 1)[: len(self.cell_T)]
        cells: Tensor = _Spread.apply(value_THD, self)  # pyright: ignore[reportAssignmentType]
        return cells.view(self.num_rows, self.num_columns, *value_THD.shape[1:]).transpose(1, 2)

    def gather(self, value_BLHD: Tensor, num_tokens: int) -> Tensor:
        """Rows [B, L, H, D] back as [1, T, H, D]; of a token in several rows, what its first cell holds."""
        value_THD = value_BLHD.flatten(0, 1)[self.cell_T]
        return nn.functional.pad(value_THD, (0, 0, 0, 0, 0, num_tokens - len(self.cell_T)))[None]


class _Spread(torch.autograd.Function):
    """Autograd's own backward pass of an index with copies adds up every token one by one; here only the copies."""

    @staticmethod
    def forward(ctx: Any, value_THD: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        cells_CHD = value_THD.new_zeros(packing.num_rows * packing.num_columns, *value_THD.shape[1:])
        cells_CHD.index_copy_(0, packing.cell_T, value_THD)
        if len(packing.copy_K):
            cells_CHD.index_copy_(0, packing.copy_K, value_THD.index_select(0, packing.copied_K))
        return cells_CHD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        packing: Packing = ctx.packing
        grad_THD = grads[0].index_select(0, packing.cell_T)
        if len(packing.copy_K):
            grad_THD.index_add_(0, packing.copied_K, grads[0].index_select(0, packing.copy_K))
        return grad_THD, None


def attend(
    module: nn.Module,
    query_BQLD: Tensor,
    key_BKLD: Tensor,
    value_BKLD: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    packing: Packing | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """[B, L, Q, D]: causal within each row of a packing; one query a row with an additive mask; otherwise sdpa's."""
    length, head_dim = query_BQLD.shape[2:]
    scale = head_dim**-0.5 if scaling is None else scaling
    if packing is not None:
        query, key, value = (packing.spread(value) for value in (query_BQLD, key_BKLD, value_BKLD))
        if _dense_pays(query) and not dropout:
            out_BLQD = _dense_causal(query, key, value, scale=scale)
        else:
            out_BLQD, _ = sdpa_attention_forward(
                module, query, key, value, None, scaling=scaling, dropout=dropout, is_causal=True
            )
        return packing.gather(out_BLQD, length), None
    if length != 1 or attention_mask is None:
        return sdpa_attention_forward(
            module, query_BQLD, key_BKLD, value_BKLD, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
    return attend_one(query_BQLD[:, :, 0], key_BKLD, value_BKLD, attention_mask, scale)[:, None], None


def attend_one(query_BQD: Tensor, key_BKLD: Tensor, value_BKLD: Tensor, mask_B11L: Tensor, scale: float) -> Tensor:
    """[B, Q, D]: one query a row over the cache, with an additive float32 mask."""
    query_BKGD = query_BQD.unflatten(1, (key_BKLD.shape[1], -1))
    score_BKGL = (query_BKGD * scale) @ key_BKLD.transpose(-1, -2)
    share_BKGL = (score_BKGL + mask_B11L).softmax(-1).to(value_BKLD.dtype)
    return (share_BKGL @ value_BKLD).flatten(1, 2)


def _dense_pays(query_BQLD: Tensor) -> bool:
    """On a CPU in bfloat16 the fused kernel's backward pass takes five times as long as plain matrix products, while
    the scores (two bytes each) stay small."""
    rows, heads, length, _ = query_BQLD.shape
    on_cpu_bf16 = query_BQLD.device.type == "cpu" and query_BQLD.dtype == torch.bfloat16
    return on_cpu_bf16 and rows * heads * length**2 <= 2**26


def _dense_causal(query_BQLD: Tensor, key_BKLD: Tensor, value_BKLD: Tensor, *, scale: float) -> Tensor:
    """Causal attention [B, L, Q, D] by two batched products, query heads grouped under their key/value head."""
    rows, query_heads, length, head_dim = query_BQLD.shape
    kv_heads = key_BKLD.shape[1]
    grouped_BKMD = (query_BQLD * scale).reshape(rows, kv_heads, -1, head_dim)  # M = G x L
    future_LL = torch.full((length, length), -torch.inf, dtype=query_BQLD.dtype, device=query_BQLD.device).triu(1)
    score_BKML = grouped_BKMD @ key_BKLD.transpose(-1, -2)
    share_BKGLL = (score_BKML.view(rows, kv_heads, -1, length, length) + future_LL).softmax(-1)
    out_BKMD = share_BKGLL.view(score_BKML.shape) @ value_BKLD
    return out_BKMD.view(rows, query_heads, length, head_dim).transpose(1, 2)


def use(model: Any) -> None:
    """Make the model attend by `attend`."""
    if NAME not in AttentionInterface().valid_keys():
        AttentionInterface.register(NAME, attend)
        AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model.set_attn_implementation(NAME)
