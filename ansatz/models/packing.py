"""Layouts of flat tokens in attention. Only attention pads tokens to rows; no other layer computes on padding.

Axes: T flat tokens, C the tokens that a layout places in cells, K additional copies, P places, E empty places, N rows
(or all their cells), L columns, H heads, D head size, X the moved values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ROUND_TOKENS, ROUND_FLOAT32_ON_CPU = 512, 64
"""The flat axis has a multiple of this length. Kernels are compiled for every new shape, which costs more than the
padding; but not in float32 on a CPU, where padding to 512 takes a tenth of an SFT step of the tiny recipes."""


class Places(NamedTuple):
    """Which value comes to each of P places, along the first axis.

    source_P: the index of the value; any index for a place without one. empty_E: the places without a value, which get
    0.
    """

    source_P: Tensor
    empty_E: Tensor

    def fill(self, values: Tensor) -> Tensor:
        """Return the values in their places, [P, ...]."""
        filled = values.index_select(0, self.source_P)
        return filled.index_fill_(0, self.empty_E, 0) if len(self.empty_E) else filled


class _Heads(NamedTuple):
    """The places of values of several heads. Each token has its heads side by side; copied_K are whole tokens.

    first_cells: `cells`, without those that hold a copy.
    """

    cells: Places
    first_cells: Places
    tokens: Places
    copied_K: Tensor
    copy_cell_X: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedLayout:
    """Flat tokens in cells of padded rows: in each row, all columns of the first head, then all of the next one.

    cells: the token in each cell. tokens: the cell of each token, its first one if it is in several.
    copied_K, copy_cell_K: tokens that occur in further cells, and those cells. Example: the prompt of a group is one
        flat range of tokens that appears in the row of every sample.
    blocks: (rows, columns) of each block of rows.
    row_N, columns_N: the first cell of each cell's row, and the columns of that row. All cells are numbered for one
        head here.
    by_heads: the same for several heads, once it is needed.
    """

    cells: Places
    tokens: Places
    copied_K: Tensor
    copy_cell_K: Tensor
    blocks: Sequence[tuple[int, int]]
    row_N: Tensor
    columns_N: Tensor
    by_heads: dict[int, _Heads] = field(default_factory=dict)

    def to_rows(self, value_1HTD: Tensor) -> Tensor:
        """Return [1, H, T, D] as padded rows [N, H, L, D], with 0 in cells without a token."""
        heads, size = value_1HTD.shape[1], value_1HTD.shape[-1]
        places, value_XD = self.for_heads(heads), value_1HTD[0].transpose(0, 1).reshape(-1, size)
        cell_XD: Tensor = _Move.apply(value_XD, places.cells, places.tokens, places)  # pyright: ignore[reportAssignmentType]
        return cell_XD.view(-1, heads, self.blocks[0][1], size)

    def to_flat(self, cell_XD: Tensor, *, heads: int) -> Tensor:
        """Return the values of the tokens, [1, T, H, D], with 0 for those without a cell. X: all cells of all heads."""
        places = self.for_heads(heads)
        value_XD: Tensor = _Move.apply(cell_XD, places.tokens, places.first_cells, None)  # pyright: ignore[reportAssignmentType]
        return value_XD.view(1, -1, heads, cell_XD.shape[-1])

    def for_heads(self, heads: int) -> _Heads:
        """Return the places for values of several heads."""
        if heads not in self.by_heads:
            source_X = torch.empty_like(self.row_N).repeat(heads)
            every_N = torch.arange(len(self.row_N), device=source_X.device)
            source_X[self._number(every_N, heads)] = _of_heads(self.cells.source_P, heads)
            empty_X, copy_X = (self._number(cells, heads) for cells in (self.cells.empty_E, self.copy_cell_K))
            self.by_heads[heads] = _Heads(
                cells=Places(source_X, empty_X),
                first_cells=Places(source_X, torch.cat((empty_X, copy_X))),
                tokens=Places(self._number(self.tokens.source_P, heads), _of_heads(self.tokens.empty_E, heads)),
                copied_K=self.copied_K,
                copy_cell_X=copy_X,
            )
        return self.by_heads[heads]

    def _number(self, cell_P: Tensor, heads: int) -> Tensor:
        """Return the numbers of the cells for several heads, [P x H]."""
        row_P, head_H = self.row_N[cell_P], torch.arange(heads, device=cell_P.device)
        return ((row_P * heads + cell_P - row_P)[:, None] + head_H * self.columns_N[cell_P][:, None]).flatten()


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPromptLayout:
    """Attention layout for prompts shared by several responses.

    Each prompt is one query row (`prompts`). Each response is another query row (`responses`), whose keys (`keys`) are
    the prompt's keys, padded on the left to a common column, followed by its own.

    start_N: the first column of each row of `keys` that holds a token.
    queries: the cells of `prompts`, then the cells of `responses`.
    """

    prompts: PaddedLayout
    responses: PaddedLayout
    keys: PaddedLayout
    start_N: Tensor
    queries: PaddedLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedInputs:
    """The part of a flat batch that is computed, and its layouts.

    padded: one row per segment. shared: the layout for shared prompts; None if no prompt is shared.
    num_tokens: the length of the flat axis that is computed: the number of tokens, rounded up to a multiple.
    computed_T: the flat tokens to compute, ascending; None: all. source_T: for each flat token, the index of its value
        among the computed ones.
    """

    padded: PaddedLayout
    shared: SharedPromptLayout | None
    num_tokens: int
    computed_T: Tensor | None
    source_T: Tensor


def pack(
    position_T: Tensor, segment_T: Tensor, prompt_id_T: Tensor | None, *, multiple: int = ROUND_TOKENS
) -> PackedInputs:
    """Plan the computation of a flat batch. Each shared prompt is computed once.

    segment_T: 0..N-1, ascending. position_T: 0, 1, ... within each segment. prompt_id_T: the same number for all copies
    of one prompt, -1 for tokens that are not shared.
    """
    num_columns, num_rows = round_up(int(position_T.max()) + 1, 16), int(segment_T[-1]) + 1
    cell_T = segment_T * num_columns + position_T
    index_T = torch.arange(len(position_T), device=position_T.device)
    if prompt_id_T is None or not bool((prompt_id_T >= 0).any()):
        num_tokens = round_up(len(index_T), multiple)
        padded = _lay_out(index_T, cell_T, num_tokens, [(num_rows, num_columns)])
        return PackedInputs(padded=padded, shared=None, num_tokens=num_tokens, computed_T=None, source_T=index_T)
    # All copies of a prompt token get the same key. Every other token gets its own key, larger than all of those.
    prompt_key_T = prompt_id_T * num_columns + position_T
    first_free_key = (int(prompt_id_T.max()) + 1) * num_columns
    key_T = torch.where(prompt_id_T >= 0, prompt_key_T, first_free_key + index_T)
    number_T = torch.unique(key_T, return_inverse=True)[1]
    original_T = torch.full_like(index_T, len(index_T)).scatter_reduce(0, number_T, index_T, "amin")[number_T]
    is_computed_T = original_T == index_T
    source_T = (is_computed_T.cumsum(0) - 1)[original_T]
    num_tokens = round_up(int(source_T.max()) + 1, multiple)
    copies = source_T[~is_computed_T], cell_T[~is_computed_T]
    return PackedInputs(
        padded=_lay_out(
            source_T[is_computed_T], cell_T[is_computed_T], num_tokens, [(num_rows, num_columns)], copies=copies
        ),
        shared=_lay_out_shared_prompts(position_T, segment_T, prompt_id_T, is_computed_T, source_T, num_tokens),
        num_tokens=num_tokens,
        computed_T=index_T[is_computed_T],
        source_T=source_T,
    )


def _lay_out(
    token_C: Tensor,
    cell_C: Tensor,
    num_tokens: int,
    blocks: Sequence[tuple[int, int]],
    *,
    copies: tuple[Tensor, Tensor] | None = None,
) -> PaddedLayout:
    """Put tokens into cells. blocks: as in `PaddedLayout`. copies: further tokens and cells, [K] each."""
    copied_K, copy_cell_K = copies or (token_C[:0], cell_C[:0])
    sizes = torch.tensor([columns for rows, columns in blocks for _ in range(rows)], device=cell_C.device)
    columns_N = sizes.repeat_interleave(sizes)
    return PaddedLayout(
        cells=_find_places(torch.cat((cell_C, copy_cell_K)), torch.cat((token_C, copied_K)), len(columns_N)),
        tokens=_find_places(token_C, cell_C, num_tokens),
        copied_K=copied_K,
        copy_cell_K=copy_cell_K,
        blocks=blocks,
        row_N=(sizes.cumsum(0) - sizes).repeat_interleave(sizes),
        columns_N=columns_N,
    )


def _find_places(place_C: Tensor, source_C: Tensor, num_places: int) -> Places:
    source_P = torch.full((num_places,), -1, device=place_C.device)
    source_P[place_C] = source_C
    return Places(source_P.clamp(min=0), (source_P < 0).nonzero().squeeze(-1))


def _lay_out_shared_prompts(
    position_T: Tensor, segment_T: Tensor, prompt_id_T: Tensor, is_computed_T: Tensor, source_T: Tensor, num_tokens: int
) -> SharedPromptLayout | None:
    """Lay out the prompts and responses of a batch; None if the batch consists only of prompts."""
    is_response_C = prompt_id_T[is_computed_T] < 0
    if not bool(is_response_C.any()):
        return None
    num_rows = int(segment_T[-1]) + 1
    prompt_length_N = torch.bincount(segment_T[prompt_id_T >= 0], minlength=num_rows)
    after_T = position_T - prompt_length_N[segment_T]  # 0, 1, ... in a response, negative in a prompt
    prompt_columns = round_up(int(prompt_length_N.max()), 16)
    columns = round_up(int(after_T.max()) + 1, 16)

    prompt_C, response_C = (~is_response_C).nonzero().squeeze(-1), is_response_C.nonzero().squeeze(-1)
    distinct_prompts, row_C = prompt_id_T[is_computed_T][prompt_C].unique(return_inverse=True)
    prompt_cell_C = row_C * prompt_columns + position_T[is_computed_T][prompt_C]
    response_cell_C = (segment_T * columns + after_T)[is_computed_T][response_C]
    prompt_block, response_block = [(len(distinct_prompts), prompt_columns)], [(num_rows, columns)]
    prompt_cells = len(distinct_prompts) * prompt_columns
    cell_T = segment_T * (prompt_columns + columns) + prompt_columns + after_T
    copies = source_T[~is_computed_T], cell_T[~is_computed_T]
    return SharedPromptLayout(
        prompts=_lay_out(prompt_C, prompt_cell_C, num_tokens, prompt_block),
        responses=_lay_out(response_C, response_cell_C, num_tokens, response_block),
        keys=_lay_out(
            source_T[is_computed_T],
            cell_T[is_computed_T],
            num_tokens,
            [(num_rows, prompt_columns + columns)],
            copies=copies,
        ),
        start_N=prompt_columns - prompt_length_N,
        queries=_lay_out(
            torch.cat((prompt_C, response_C)),
            torch.cat((prompt_cell_C, prompt_cells + response_cell_C)),
            num_tokens,
            prompt_block + response_block,
        ),
    )


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _of_heads(token_C: Tensor, heads: int) -> Tensor:
    """Return the numbers of the tokens' values, [C x H], if the heads of a token are side by side."""
    return (token_C[:, None] * heads + torch.arange(heads, device=token_C.device)).flatten()


class _Move(torch.autograd.Function):
    """Moves values to other places, and gradients back.

    Without this, autograd's backward pass would add up the values of each place, although most have only one. Here it
    adds up only the copies.
    """

    @staticmethod
    def forward(ctx: Any, value_XD: Tensor, there: Places, back: Places, copies: _Heads | None) -> Tensor:
        ctx.back, ctx.copies = back, copies
        return there.fill(value_XD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        grad_XD, copies = ctx.back.fill(grads[0]), ctx.copies
        if copies is not None and (num_copies := len(copies.copied_K)):
            grad_KX = grads[0].index_select(0, copies.copy_cell_X).view(num_copies, -1)
            grad_XD.view(-1, grad_KX.shape[-1]).index_add_(0, copies.copied_K, grad_KX)
        return grad_XD, None, None, None
