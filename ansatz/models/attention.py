"""One attention function for prefill, decode and training, plugged into transformers by its attention interface.

Axes: B rows, Q query heads, K key/value heads, G = Q/K query heads a key/value head, D head size, L cached length.
Decode has one query a row: two batched matrix products over the cache as it lies, grouped by key/value head, so no head
is repeated and nothing of the cache is copied. All else is transformers' own scaled-dot-product path.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

NAME = "ansatz"


def attend(
    module: nn.Module,
    query_BQLD: Tensor,
    key_BKLD: Tensor,
    value_BKLD: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """[B, 1, Q, D] for one query a row with an additive mask [B, 1, 1, L]; otherwise sdpa's result."""
    rows, query_heads, length, head_dim = query_BQLD.shape
    if length != 1 or attention_mask is None:
        return sdpa_attention_forward(
            module, query_BQLD, key_BKLD, value_BKLD, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
    kv_heads = key_BKLD.shape[1]
    query_BKGD = query_BQLD.view(rows, kv_heads, query_heads // kv_heads, head_dim)
    scale = head_dim**-0.5 if scaling is None else scaling
    score_BKGL = (query_BKGD * scale) @ key_BKLD.transpose(-1, -2)
    share_BKGL = (score_BKGL.float() + attention_mask).softmax(-1).to(value_BKLD.dtype)
    out_BKGD = share_BKGL @ value_BKLD
    return out_BKGD.reshape(rows, 1, query_heads, head_dim), None


def use(model: Any) -> None:
    """Make the model attend by `attend`."""
    if NAME not in AttentionInterface().valid_keys():
        AttentionInterface.register(NAME, attend)
        AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model.set_attn_implementation(NAME)
