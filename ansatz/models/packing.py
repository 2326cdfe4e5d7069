"""Where flat tokens stand while attention lays them out as rows; no other layer computes on padding.

Axes: T flat tokens, C those of them that stand in a packing's rows, K further cells of some, N rows, H heads, D head
size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedLayout:
    """Flat tokens in num_rows x num_columns cells, numbered row * num_columns + column; each stands in one.

    token_C, cell_C: which tokens (None: the first C), and their cells. copied_K, copy_K: tokens that stand in further
    cells, as a prompt does that a group shares, and these.
    """

    token_C: Tensor | None
    cell_C: Tensor
    copied_K: Tensor
    copy_K: Tensor
    num_rows: int
    num_columns: int

    def spread(self, value_1HTD: Tensor) -> Tensor:
        """[1, H, T, D] as rows [N, H, L, D], 0 where there is no token."""
        cells: Tensor = _Spread.apply(value_1HTD[0].transpose(0, 1), self)  # pyright: ignore[reportAssignmentType]
        return cells.view(self.num_rows, self.num_columns, *cells.shape[1:]).transpose(1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPromptLayout:
    """Rows in which a prompt that is shared asks only once: prompts as rows of their own, and responses as rows whose
    keys are the prompt's, up to a column that is the same for all, and after it their own.

    start_N: the first column of each row's keys that holds a token. cell_C: each token's cell, all cells of prompts
    before those of responses.
    """

    prompts: PaddedLayout
    responses: PaddedLayout
    keys: PaddedLayout
    start_N: Tensor
    cell_C: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedInputs:
    """What is computed of a flat batch. computed_T: its flat tokens, ascending, None for all; source_T: which of
    these each
    flat token is. apart: None where no prompt is shared."""

    whole: PaddedLayout
    apart: SharedPromptLayout | None
    computed_T: Tensor | None
    source_T: Tensor


def gather(cells_NHD: Tensor, cell_C: Tensor, num_tokens: int) -> Tensor:
    """What each of the first C tokens' cells holds, [1, T, H, D], and 0 for the tokens after them."""
    value_CHD = cells_NHD[cell_C]
    return nn.functional.pad(value_CHD, (0, 0, 0, 0, 0, num_tokens - len(cell_C)))[None]


def pack(position_T: Tensor, segment_T: Tensor, prompt_id_T: Tensor | None) -> PackedInputs:
    """segment_T: 0..N-1, ascending; position_T: 0.. within each. prompt_id_T: the same number for all copies of one
    prefix, -1 outside; each prefix is computed once."""
    num_columns, num_rows = round_up(int(position_T.max()) + 1, 16), int(segment_T[-1]) + 1
    cell_T = segment_T * num_columns + position_T
    index_T = torch.arange(len(position_T), device=position_T.device)
    none_K = index_T[:0]
    shape = {"num_rows": num_rows, "num_columns": num_columns}
    if prompt_id_T is None or not bool((prompt_id_T >= 0).any()):
        whole = PaddedLayout(token_C=None, cell_C=cell_T, copied_K=none_K, copy_K=none_K, **shape)
        return PackedInputs(whole=whole, apart=None, computed_T=None, source_T=index_T)
    # One number for all copies of a token; those outside prefixes get one each, after all of these.
    shared_T = prompt_id_T * num_columns + position_T
    apart = (int(prompt_id_T.max()) + 1) * num_columns
    name_T = torch.where(prompt_id_T >= 0, shared_T, apart + index_T)
    number_T = torch.unique(name_T, return_inverse=True)[1]
    original_T = torch.full_like(index_T, len(index_T)).scatter_reduce(0, number_T, index_T, "amin")[number_T]
    is_own_T = original_T == index_T
    source_T = (is_own_T.cumsum(0) - 1)[original_T]
    copied_K = source_T[~is_own_T]
    whole = PaddedLayout(token_C=None, cell_C=cell_T[is_own_T], copied_K=copied_K, copy_K=cell_T[~is_own_T], **shape)
    return PackedInputs(
        whole=whole,
        apart=_apart(position_T, segment_T, prompt_id_T, is_own_T, copied_K),
        computed_T=index_T[is_own_T],
        source_T=source_T,
    )


def _apart(
    position_T: Tensor, segment_T: Tensor, prompt_id_T: Tensor, is_own_T: Tensor, copied_K: Tensor
) -> SharedPromptLayout | None:
    is_response_C = prompt_id_T[is_own_T] < 0
    if not bool(is_response_C.any()):
        return None
    num_rows, none_K = int(segment_T[-1]) + 1, copied_K[:0]
    prefix_N = torch.bincount(segment_T[prompt_id_T >= 0], minlength=num_rows)
    after_T = position_T - prefix_N[segment_T]  # 0.. for a response, below 0 for a prompt
    prompt_columns, columns = (round_up(int(most), 16) for most in (prefix_N.max(), after_T.max() + 1))

    prompt_C, response_C = (~is_response_C).nonzero().squeeze(-1), is_response_C.nonzero().squeeze(-1)
    all_prefixes, row_C = prompt_id_T[is_own_T][prompt_C].unique(return_inverse=True)
    prompts = PaddedLayout(
        token_C=prompt_C,
        cell_C=row_C * prompt_columns + position_T[is_own_T][prompt_C],
        copied_K=none_K,
        copy_K=none_K,
        num_rows=len(all_prefixes),
        num_columns=prompt_columns,
    )
    responses = PaddedLayout(
        token_C=response_C,
        cell_C=(segment_T * columns + after_T)[is_own_T][response_C],
        copied_K=none_K,
        copy_K=none_K,
        num_rows=num_rows,
        num_columns=columns,
    )
    cell_T = segment_T * (prompt_columns + columns) + prompt_columns + after_T
    keys = PaddedLayout(
        token_C=None,
        cell_C=cell_T[is_own_T],
        copied_K=copied_K,
        copy_K=cell_T[~is_own_T],
        num_rows=num_rows,
        num_columns=prompt_columns + columns,
    )
    cell_C = torch.empty_like(is_response_C, dtype=torch.long)
    cell_C[prompt_C] = prompts.cell_C
    cell_C[response_C] = len(all_prefixes) * prompt_columns + responses.cell_C
    return SharedPromptLayout(
        prompts=prompts, responses=responses, keys=keys, start_N=prompt_columns - prefix_N, cell_C=cell_C
    )


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class _Spread(torch.autograd.Function):
    """Autograd's own backward pass of an index with copies adds up every token one by one; here only the copies."""

    @staticmethod
    def forward(ctx: Any, value_THD: Tensor, packing: PaddedLayout) -> Tensor:
        ctx.packing, ctx.num_tokens = packing, len(value_THD)
        cells_NHD = value_THD.new_zeros(packing.num_rows * packing.num_columns, *value_THD.shape[1:])
        standing_CHD = (
            value_THD[: len(packing.cell_C)] if packing.token_C is None else value_THD.index_select(0, packing.token_C)
        )
        cells_NHD.index_copy_(0, packing.cell_C, standing_CHD)
        if len(packing.copy_K):
            cells_NHD.index_copy_(0, packing.copy_K, value_THD.index_select(0, packing.copied_K))
        return cells_NHD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        packing: PaddedLayout = ctx.packing
        grad_CHD = grads[0].index_select(0, packing.cell_C)
        if packing.token_C is None:
            grad_THD = nn.functional.pad(grad_CHD, (0, 0, 0, 0, 0, ctx.num_tokens - len(grad_CHD)))
        else:
            grad_THD = grad_CHD.new_zeros(ctx.num_tokens, *grad_CHD.shape[1:])
            grad_THD.index_copy_(0, packing.token_C, grad_CHD)
        if len(packing.copy_K):
            grad_THD.index_add_(0, packing.copied_K, grads[0].index_select(0, packing.copy_K))
        return grad_THD, None
