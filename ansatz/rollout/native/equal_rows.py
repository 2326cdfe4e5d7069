"""Matrix products that give a row the same bits whatever other rows are in the batch.

On CPUs with AMX, oneDNN divides the sum of a bfloat16 product into blocks whose size depends on the number of rows, if
the sum has at least 512 terms. MKL's float32 products with AVX2 depend on the number of rows as well. A response could
then depend on its company. Products of a fixed number of rows do not.

Axes: M rows, K terms of a sum, N columns.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ansatz.models.load import Policy


class Blocks(NamedTuple):
    """rows: of every product whose sums have at least `terms` terms."""

    rows: int
    terms: int


_OF_AMX = Blocks(rows=128, terms=512)
_OF_MKL = Blocks(rows=96, terms=1)
"""A share of 96 rows for each of 1, 2, 4, 8 or 16 threads is a multiple of 6 rows, which MKL computes alike."""


def blocks_of(policy: Policy) -> Blocks | None:
    """Return in which blocks a product has to be computed; None if it may have any number of rows."""
    if policy.device.type != "cpu":
        return None
    if policy.dtype == torch.bfloat16:
        return _OF_AMX if torch.cpu.get_capabilities().get("amx_bf16") else None
    return _OF_MKL if _depend_on_rows() else None


def for_rows(policy: Policy, function: Callable[[Tensor], Tensor], terms: int) -> Callable[[Tensor], Tensor]:
    """Return a function of rows, with sums of this many terms, such that a row has the same bits in every batch."""
    blocks = blocks_of(policy)
    return function if blocks is None or terms < blocks.terms else partial(in_blocks, function, blocks.rows)


@functools.cache
def _depend_on_rows() -> bool:
    """Tell whether float32 products of a few sizes give a row other bits with other numbers of rows, of which a batch
    has at least 32."""
    for terms, columns in ((64, 64), (256, 768), (768, 256), (1024, 96)):
        left_MK = torch.arange(128 * terms).sin().view(128, terms)
        weight_NK = torch.arange(columns * terms).cos().view(columns, terms)
        whole_MN = nn.functional.linear(left_MK, weight_NK)
        for rows in (32, 50, 64, 96, 100):
            if not nn.functional.linear(left_MK[:rows], weight_NK).equal(whole_MN[:rows]):
                return True
    return False


@contextmanager
def equal_rows(policy: Policy) -> Iterator[None]:
    """Make the linear layers of the policy give a row the same bits in every batch, within the block."""
    least = (blocks_of(policy) or Blocks(0, sys.maxsize)).terms
    linears = [module for module in policy.model.modules() if isinstance(module, nn.Linear)]
    replaced = [linear for linear in linears if linear.in_features >= least]
    for linear in replaced:
        vars(linear)["forward"] = for_rows(policy, linear.forward, linear.in_features)
    try:
        yield
    finally:
        for linear in replaced:
            del linear.forward


def in_blocks(function: Callable[[Tensor], Tensor], rows: int, input: Tensor) -> Tensor:
    """Map an input [..., K] to [..., N] by a function of rows, which always gets that many: [rows, K] -> [rows, N]. The
    last block is filled up with zeros."""
    blocks = list[Tensor]()
    for block_MK in input.reshape(-1, input.shape[-1]).split(rows):
        missing = rows - len(block_MK)
        filled = nn.functional.pad(block_MK, (0, 0, 0, missing)) if missing else block_MK
        blocks.append(function(filled)[: len(block_MK)])
    return torch.cat(blocks).view(*input.shape[:-1], -1)
