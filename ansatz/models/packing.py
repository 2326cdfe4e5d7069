"""Layouts of flat tokens in attention. Only attention pads tokens to rows; no other layer computes on padding.

Axes: T flat tokens, C the tokens that a layout places in cells, K additional copies, N rows, L columns, H heads, D head
size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ansatz.models.determinism import any_order


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedLayout:
    """Flat tokens in num_rows x num_columns cells. A cell's number is row * num_columns + column.

    token_C: which flat tokens the layout places; None: the first C. cell_C: the cell of each.
    copied_K, copy_cell_K: tokens that occur in further cells, and those cells. Example: the prompt of a group is one
        flat range of tokens that appears in the row of every sample.
    """

    token_C: Tensor | None
    cell_C: Tensor
    copied_K: Tensor
    copy_cell_K: Tensor
    num_rows: int
    num_columns: int

    def to_rows(self, value_1HTD: Tensor) -> Tensor:
        """Return [1, H, T, D] as padded rows [N, H, L, D], with 0 in cells without a token."""
        cells: Tensor = _ToCells.apply(value_1HTD[0].transpose(0, 1), self)  # pyright: ignore[reportAssignmentType]
        return cells.view(self.num_rows, self.num_columns, *cells.shape[1:]).transpose(1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPromptLayout:
    """Attention layout for prompts shared by several responses.

    Each prompt is one query row (`prompts`). Each response is another query row (`responses`), whose keys (`keys`) are
    the prompt's keys, padded on the left to a common column, followed by its own.

    start_N: the first column of each row of `keys` that holds a token.
    cell_C: the cell of each token if all cells of `prompts` come before those of `responses`.
    """

    prompts: PaddedLayout
    responses: PaddedLayout
    keys: PaddedLayout
    start_N: Tensor
    cell_C: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedInputs:
    """What is computed of a flat batch.

    padded: one row per segment. shared: the layout for shared prompts; None if no prompt is shared.
    computed_T: the flat tokens to compute, ascending; None: all. source_T: for each flat token, the index of its value
        among the computed ones.
    """

    padded: PaddedLayout
    shared: SharedPromptLayout | None
    computed_T: Tensor | None
    source_T: Tensor


def to_flat(cells_NHD: Tensor, cell_C: Tensor, num_tokens: int) -> Tensor:
    """Return the values in the cells of the first C tokens, and 0 for the tokens after them: [1, T, H, D]."""
    value_CHD: Tensor = _FromCells.apply(cells_NHD, cell_C)  # pyright: ignore[reportAssignmentType]
    return nn.functional.pad(value_CHD, (0, 0, 0, 0, 0, num_tokens - len(cell_C)))[None]


def pack(position_T: Tensor, segment_T: Tensor, prompt_id_T: Tensor | None) -> PackedInputs:
    """Plan the computation of a flat batch. Each shared prompt is computed once.

    segment_T: 0..N-1, ascending. position_T: 0, 1, ... within each segment. prompt_id_T: the same number for all copies
    of one prompt, -1 for tokens that are not shared.
    """
    num_columns, num_rows = round_up(int(position_T.max()) + 1, 16), int(segment_T[-1]) + 1
    cell_T = segment_T * num_columns + position_T
    index_T = torch.arange(len(position_T), device=position_T.device)
    empty_K = index_T[:0]
    shape = {"num_rows": num_rows, "num_columns": num_columns}
    if prompt_id_T is None or not bool((prompt_id_T >= 0).any()):
        padded = PaddedLayout(token_C=None, cell_C=cell_T, copied_K=empty_K, copy_cell_K=empty_K, **shape)
        return PackedInputs(padded=padded, shared=None, computed_T=None, source_T=index_T)
    # All copies of a prompt token get the same key. Every other token gets its own key, larger than all of those.
    prompt_key_T = prompt_id_T * num_columns + position_T
    first_free_key = (int(prompt_id_T.max()) + 1) * num_columns
    key_T = torch.where(prompt_id_T >= 0, prompt_key_T, first_free_key + index_T)
    number_T = torch.unique(key_T, return_inverse=True)[1]
    original_T = torch.full_like(index_T, len(index_T)).scatter_reduce(0, number_T, index_T, "amin")[number_T]
    is_computed_T = original_T == index_T
    source_T = (is_computed_T.cumsum(0) - 1)[original_T]
    copied_K = source_T[~is_computed_T]
    padded = PaddedLayout(
        token_C=None, cell_C=cell_T[is_computed_T], copied_K=copied_K, copy_cell_K=cell_T[~is_computed_T], **shape
    )
    return PackedInputs(
        padded=padded,
        shared=_shared_prompt_layout(position_T, segment_T, prompt_id_T, is_computed_T, copied_K),
        computed_T=index_T[is_computed_T],
        source_T=source_T,
    )


def _shared_prompt_layout(
    position_T: Tensor, segment_T: Tensor, prompt_id_T: Tensor, is_computed_T: Tensor, copied_K: Tensor
) -> SharedPromptLayout | None:
    """Lay out the prompts and responses of a batch; None if the batch consists only of prompts."""
    is_response_C = prompt_id_T[is_computed_T] < 0
    if not bool(is_response_C.any()):
        return None
    num_rows, empty_K = int(segment_T[-1]) + 1, copied_K[:0]
    prompt_length_N = torch.bincount(segment_T[prompt_id_T >= 0], minlength=num_rows)
    after_T = position_T - prompt_length_N[segment_T]  # 0, 1, ... in a response, negative in a prompt
    prompt_columns = round_up(int(prompt_length_N.max()), 16)
    columns = round_up(int(after_T.max()) + 1, 16)

    prompt_C, response_C = (~is_response_C).nonzero().squeeze(-1), is_response_C.nonzero().squeeze(-1)
    distinct_prompts, row_C = prompt_id_T[is_computed_T][prompt_C].unique(return_inverse=True)
    prompts = PaddedLayout(
        token_C=prompt_C,
        cell_C=row_C * prompt_columns + position_T[is_computed_T][prompt_C],
        copied_K=empty_K,
        copy_cell_K=empty_K,
        num_rows=len(distinct_prompts),
        num_columns=prompt_columns,
    )
    responses = PaddedLayout(
        token_C=response_C,
        cell_C=(segment_T * columns + after_T)[is_computed_T][response_C],
        copied_K=empty_K,
        copy_cell_K=empty_K,
        num_rows=num_rows,
        num_columns=columns,
    )
    cell_T = segment_T * (prompt_columns + columns) + prompt_columns + after_T
    keys = PaddedLayout(
        token_C=None,
        cell_C=cell_T[is_computed_T],
        copied_K=copied_K,
        copy_cell_K=cell_T[~is_computed_T],
        num_rows=num_rows,
        num_columns=prompt_columns + columns,
    )
    cell_C = torch.empty_like(is_response_C, dtype=torch.long)
    cell_C[prompt_C] = prompts.cell_C
    cell_C[response_C] = len(distinct_prompts) * prompt_columns + responses.cell_C
    return SharedPromptLayout(
        prompts=prompts, responses=responses, keys=keys, start_N=prompt_columns - prompt_length_N, cell_C=cell_C
    )


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class _ToCells(torch.autograd.Function):
    """Without this, autograd's backward pass of an index with copies would add up all tokens one by one. Here it adds
    up only the copies."""

    @staticmethod
    def forward(ctx: Any, value_THD: Tensor, layout: PaddedLayout) -> Tensor:
        ctx.layout, ctx.num_tokens = layout, len(value_THD)
        cells_NHD = value_THD.new_zeros(layout.num_rows * layout.num_columns, *value_THD.shape[1:])
        placed_CHD = (
            value_THD[: len(layout.cell_C)] if layout.token_C is None else value_THD.index_select(0, layout.token_C)
        )
        with any_order(cells_NHD.device):
            cells_NHD.index_copy_(0, layout.cell_C, placed_CHD)
            if len(layout.copy_cell_K):
                cells_NHD.index_copy_(0, layout.copy_cell_K, value_THD.index_select(0, layout.copied_K))
        return cells_NHD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        layout: PaddedLayout = ctx.layout
        grad_CHD = grads[0].index_select(0, layout.cell_C)
        if layout.token_C is None:
            grad_THD = nn.functional.pad(grad_CHD, (0, 0, 0, 0, 0, ctx.num_tokens - len(grad_CHD)))
        else:
            grad_THD = grad_CHD.new_zeros(ctx.num_tokens, *grad_CHD.shape[1:])
            grad_THD.index_copy_(0, layout.token_C, grad_CHD)
        if len(layout.copy_cell_K):
            grad_THD.index_add_(0, layout.copied_K, grads[0].index_select(0, layout.copy_cell_K))
        return grad_THD, None


class _FromCells(torch.autograd.Function):
    """Without this, autograd's backward pass of the index would add up the values of each cell, although it has only
    one."""

    @staticmethod
    def forward(ctx: Any, cells_NHD: Tensor, cell_C: Tensor) -> Tensor:
        ctx.cell_C, ctx.shape = cell_C, cells_NHD.shape
        return cells_NHD[cell_C]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad_NHD = grads[0].new_zeros(ctx.shape)
        with any_order(grad_NHD.device):
            return grad_NHD.index_copy_(0, ctx.cell_C, grads[0]), None
