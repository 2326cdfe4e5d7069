"""One attention function for prefill, decoding and training, installed through transformers' attention interface.

Axes: B rows, Q query heads, K key/value heads, G = Q/K query heads per key/value head, D head size, L length of a row,
C cached columns, T flat tokens, N rows of a layout.

Decoding has one query per row. It takes two batched matrix products over the cache as it is stored, grouped by
key/value head, so no head is repeated and nothing in the cache is copied. A prompt that rows share is read once.

Training has one flat row of many segments. Only attention lays them out as padded rows, so no other layer computes on
padding. Every other case is transformers' own path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ansatz.models.packing import PackedInputs, PaddedLayout, SharedPromptLayout

NAME = "ansatz"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrompts:
    """One layer's keys and values of R prompts, [R, K, C, D]. Each prompt has M places for rows that share it.

    A row and a key/value head form a pair; there are B x K pairs and R x K x M places.
    pair_P: the pair that asks in each place. place_P: the place of each pair.
    unshared_B: rows without a shared prompt. Their places belong to other rows, so the values that they read are
    masked.
    """

    key_RKCD: Tensor
    value_RKCD: Tensor
    pair_P: Tensor
    place_P: Tensor
    unshared_B: Tensor

    def scores(self, query_BKGD: Tensor) -> Tensor:
        """Return the scores [B, K, G, C]. Unshared rows get the scores of another row."""
        return self._to_rows(self._to_places(query_BKGD) @ self.key_RKCD.transpose(-1, -2), query_BKGD)

    def values(self, probability_BKGC: Tensor) -> Tensor:
        """Return the weighted sums of values [B, K, G, D]. Unshared rows get 0."""
        values_BKGD = self._to_rows(self._to_places(probability_BKGC) @ self.value_RKCD, probability_BKGC)
        return values_BKGD.masked_fill_(self.unshared_B[:, None, None, None], 0.0)

    def _to_places(self, value_BKGX: Tensor) -> Tensor:
        """Arrange the rows [B, K, G, X] by prompt and place, [R, K, M x G, X]."""
        num_prompts, heads = self.key_RKCD.shape[:2]
        placed = value_BKGX.flatten(0, 1).index_select(0, self.pair_P)
        return placed.view(num_prompts, heads, -1, value_BKGX.shape[-1])

    def _to_rows(self, value_RKMX: Tensor, like_BKG: Tensor) -> Tensor:
        rows, heads, groups, _ = like_BKG.shape
        size = value_RKMX.shape[-1]
        return value_RKMX.view(-1, groups * size).index_select(0, self.place_P).view(rows, heads, groups, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How products of queries and keys become probabilities.

    softcap: scores s become c tanh(s / c) (Gemma 2, arXiv:2408.00118, sec. 2).
    sink_Q: one more score per query head, of a position without a value (gpt-oss; arXiv:2309.17453). Probabilities then
        add up to less than 1.
    """

    scale: float
    softcap: float | None = None
    sink_Q: Tensor | None = None

    @property
    def is_plain(self) -> bool:
        return self.softcap is None and self.sink_Q is None

    def probabilities(self, score_BKGX: Tensor, mask: Tensor) -> Tensor:
        """Turn scores [B, K, G, ..., X] into probabilities, in place where it can be.

        mask: additive, of 0 and -inf, broadcast over the scores.
        """
        if self.softcap is not None:
            score_BKGX = torch.tanh(score_BKGX / self.softcap) * self.softcap
        score_BKGX = score_BKGX + mask if score_BKGX.requires_grad else score_BKGX.add_(mask)
        if self.sink_Q is None:
            return score_BKGX.softmax(-1)
        sink_KG = self.sink_Q.view(score_BKGX.shape[1:3])
        sink_BKG1 = sink_KG.view(*sink_KG.shape, *(1,) * (score_BKGX.ndim - 3)).expand(*score_BKGX.shape[:-1], 1)
        return torch.cat((score_BKGX, sink_BKG1), -1).softmax(-1)[..., :-1]


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
    """Compute attention [B, L, Q, D], with the signature that transformers expects. Three cases:

    packed (PackedInputs) in kwargs: causal attention within each segment of a flat row.
    One query per row with an additive mask: decoding. shared_prompts in kwargs gives each layer's `SharedPrompts`,
        window_mask the mask of layers with a sliding window.
    Otherwise: transformers' scaled dot-product attention.
    transformers passes softcap, s_aux and sliding_window in kwargs to the layers that use them.
    """
    packed: PackedInputs | None = kwargs.pop("packed", None)
    shared_prompts: Callable[[int], SharedPrompts | None] | None = kwargs.pop("shared_prompts", None)
    window_mask: Tensor | None = kwargs.pop("window_mask", None)
    window: int | None = kwargs.get("sliding_window")
    length, head_dim = query_BQLD.shape[2:]
    scoring = Scoring(
        scale=head_dim**-0.5 if scaling is None else scaling, softcap=kwargs.get("softcap"), sink_Q=kwargs.get("s_aux")
    )
    if packed is not None:
        use_dense = not dropout and (not scoring.is_plain or _dense_is_faster(query_BQLD, packed.padded))
        if use_dense and packed.shared:
            return _attend_with_shared_prompts(query_BQLD, key_BKLD, value_BKLD, packed.shared, scoring, window), None
        query, key, value = (packed.padded.to_rows(states) for states in (query_BQLD, key_BKLD, value_BKLD))
        if use_dense:
            out_BQLD = _dense(query, key, value, _causal_mask(query, key, window), scoring)
            return packed.padded.to_flat(out_BQLD.flatten(0, 2), heads=query.shape[1]), None
        mask = _causal_mask(query, key, window)[None, None] if window and query.shape[2] > window else None
        out_BLQD, _ = _transformers_attention(
            module, query, key, value, mask, scaling=scaling, dropout=dropout, is_causal=mask is None
        )
        return packed.padded.to_flat(out_BLQD.flatten(0, 1).flatten(1), heads=1).view(
            1, length, *out_BLQD.shape[2:]
        ), None
    if length == 1 and attention_mask is not None:
        mask_B11X = window_mask if window and window_mask is not None else attention_mask
        shared = shared_prompts(module.layer_idx) if shared_prompts else None  # pyright: ignore[reportArgumentType]
        out_BQD = attend_single_query(query_BQLD[:, :, 0], key_BKLD, value_BKLD, mask_B11X, scoring, shared)
        return out_BQD[:, None], None
    if scoring.is_plain:
        return _transformers_attention(
            module, query_BQLD, key_BKLD, value_BKLD, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
    mask = _causal_mask(query_BQLD, key_BKLD, window) if attention_mask is None else _additive(attention_mask, key_BKLD)
    return _dense(query_BQLD, key_BKLD, value_BKLD, mask, scoring).transpose(1, 2), None


def attend_single_query(
    query_BQD: Tensor,
    key_BKLD: Tensor,
    value_BKLD: Tensor,
    mask_B11X: Tensor,
    scoring: Scoring,
    shared: SharedPrompts | None = None,
) -> Tensor:
    """Attend [B, Q, D] with one query per row over X = C + L positions: the shared prompt's, then the row's own.

    mask_B11X: additive, of 0 and -inf. Without shared prompts X = L.
    """
    query_BKGD = query_BQD.unflatten(1, (key_BKLD.shape[1], -1)) * scoring.scale
    score_BKGX = query_BKGD @ key_BKLD.transpose(-1, -2)
    if shared is None:
        probability_BKGL = scoring.probabilities(score_BKGX, mask_B11X.to(score_BKGX.dtype))
        return (probability_BKGL @ value_BKLD).flatten(1, 2)
    score_BKGX = torch.cat((shared.scores(query_BKGD), score_BKGX), -1)
    probability_BKGX = scoring.probabilities(score_BKGX, mask_B11X.to(score_BKGX.dtype))
    columns = shared.key_RKCD.shape[2]
    out_BKGD = probability_BKGX[..., columns:] @ value_BKLD
    return out_BKGD.add_(shared.values(probability_BKGX[..., :columns])).flatten(1, 2)


def _transformers_attention(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    """Call transformers' scaled dot-product attention. It is imported with the first model, as in `install`, because
    its modules take half of the start of commands that load none."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    return sdpa_attention_forward(*args, **kwargs)


def _dense_is_faster(query_1QTD: Tensor, padded: PaddedLayout) -> bool:
    """Tell whether to use plain matrix products, which compute a shared prompt once.

    On a CPU in bfloat16, the fused kernel's backward pass takes five times as long, as long as the scores (two bytes
    each) stay small. In float32, an update with rows of 140 tokens takes 9 % less with products, one with rows of 500
    tokens 15 % more (two cores kept to AVX2).
    """
    rows, columns = padded.blocks[0]
    longest = {torch.bfloat16: columns, torch.float32: 192}.get(query_1QTD.dtype, 0)
    is_small = columns <= longest and rows * query_1QTD.shape[1] * columns**2 <= 2**26
    return query_1QTD.device.type == "cpu" and is_small


def _attend_with_shared_prompts(
    query_1QTD: Tensor,
    key_1KTD: Tensor,
    value_1KTD: Tensor,
    layout: SharedPromptLayout,
    scoring: Scoring,
    window: int | None,
) -> Tensor:
    """Attend [1, T, Q, D] within the prompts, then from the responses.

    The queries of a shared prompt are therefore computed once and not once per response.
    """
    query, key, value = (layout.prompts.to_rows(states) for states in (query_1QTD, key_1KTD, value_1KTD))
    prompt_RQLD = _dense(query, key, value, _causal_mask(query, key, window), scoring)
    query = layout.responses.to_rows(query_1QTD)
    key, value = layout.keys.to_rows(key_1KTD), layout.keys.to_rows(value_1KTD)
    column_C = torch.arange(key.shape[2], device=key.device)
    padding_NC = torch.zeros(len(key), len(column_C), dtype=key.dtype, device=key.device)
    padding_NC.masked_fill_(column_C < layout.start_N[:, None], -torch.inf)
    mask_NLC = padding_NC[:, None] + _causal_mask(query, key, window)
    response_NQLD = _dense(query, key, value, mask_NLC[:, None, None], scoring)
    cell_XD = torch.cat((prompt_RQLD.flatten(0, 2), response_NQLD.flatten(0, 2)))
    return layout.queries.to_flat(cell_XD, heads=query.shape[1])


def _causal_mask(query_BQLD: Tensor, key_BKCD: Tensor, window: int | None = None) -> Tensor:
    """Return the mask [L, C]: -inf for keys after the query and for those `window` or more positions before it, 0
    elsewhere. The last query is at the last key."""
    length, columns = query_BQLD.shape[2], key_BKCD.shape[2]
    full_LC = torch.full((length, columns), -torch.inf, dtype=query_BQLD.dtype, device=query_BQLD.device)
    mask_LC = full_LC.triu(columns - length + 1)
    return mask_LC + full_LC.tril(columns - length - window) if window and window < columns else mask_LC


def _additive(mask_B1LC: Tensor, like: Tensor) -> Tensor:
    """Convert transformers' boolean mask to an additive one, [B, 1, 1, L, C].

    Queries that see nothing, as in padding, get finite values.
    """
    lowest = torch.finfo(like.dtype).min
    return torch.zeros_like(mask_B1LC, dtype=like.dtype).masked_fill_(~mask_B1LC, lowest)[:, :, None]


def _dense(query_BQLD: Tensor, key_BKCD: Tensor, value_BKCD: Tensor, mask: Tensor, scoring: Scoring) -> Tensor:
    """Compute attention [B, Q, L, D] by two batched products, with query heads grouped under their key/value head.

    mask: additive, of 0 and -inf, broadcast over [B, K, G, L, C].
    """
    rows, query_heads, length, head_dim = query_BQLD.shape
    grouped_BKMD = (query_BQLD * scoring.scale).reshape(rows, key_BKCD.shape[1], -1, head_dim)  # M = G x L
    score_BKMC = grouped_BKMD @ key_BKCD.transpose(-1, -2)
    probability_BKGLC = scoring.probabilities(score_BKMC.unflatten(2, (-1, length)), mask)
    out_BKMD = probability_BKGLC.reshape(score_BKMC.shape) @ value_BKCD
    return out_BKMD.view(rows, query_heads, length, -1)


def install(model: Any) -> None:
    """Make the model attend by `attend`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    if NAME not in AttentionInterface().valid_keys():
        AttentionInterface.register(NAME, attend)
        AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model.set_attn_implementation(NAME)
