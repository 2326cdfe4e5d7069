"""Matrix products that give a row the same bits, whatever other rows the batch contains.

A response could otherwise depend on its company. On a CPU with a compiler, weights are packed once per call and
multiplied by `packed_products.h`, which adds up the terms of every row in one order. It is also faster for few rows.

Torch's own products remain where no weights are packed: without a compiler, for weights of 4 bits, and for bfloat16 on
CPUs with AMX, which they use. There, oneDNN divides a sum of at least 512 terms into blocks whose size depends on the
number of rows. MKL's float32 products with AVX2 depend on the number of rows as well. Products of a fixed number of
rows do not.

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

from ansatz.models.compiled import TYPES
from ansatz.models.load import Policy
from ansatz.rollout.native import cpu_kernels


class Blocks(NamedTuple):
    """rows: number of rows of every product whose sums consist of at least `terms` terms."""

    rows: int
    terms: int


_OF_AMX = Blocks(rows=128, terms=512)
_OF_MKL = Blocks(rows=96, terms=1)
"""A share of 96 rows for each of 1, 2, 4, 8 or 16 threads is a multiple of 6 rows, which MKL computes alike."""
_NOWHERE = Blocks(rows=0, terms=sys.maxsize)
_PANELS = "panels"
"""The attribute of a linear layer for its packed weight."""


def packs(policy: Policy) -> bool:
    """Tell whether weights of the policy are packed."""
    return policy.device.type == "cpu" and can_pack(policy.dtype)


def can_pack(dtype: torch.dtype) -> bool:
    """Tell whether this machine packs weights of a type. With AMX, torch multiplies weights in bfloat16."""
    return dtype in TYPES and cpu_kernels.library() is not None and not (dtype == torch.bfloat16 and _has_amx())


def panels_of(linear: nn.Module) -> Tensor | None:
    """Return the packed weight of a linear layer; None if torch multiplies it."""
    return vars(linear).get(_PANELS)


def blocks_of(policy: Policy) -> Blocks:
    """Return the blocks for computing torch's products."""
    if policy.device.type != "cpu":
        return _NOWHERE
    if policy.dtype == torch.bfloat16:
        return _OF_AMX if _has_amx() else _NOWHERE
    return _OF_MKL if _depend_on_rows() else _NOWHERE


def _has_amx() -> bool:
    return bool(torch.cpu.get_capabilities().get("amx_bf16"))


@functools.cache
def _depend_on_rows() -> bool:
    """Tell whether float32 products of a few sizes give a row other bits with other numbers of rows. A batch holds at
    least 32 rows."""
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
    """Make the linear layers of the policy give a row the same bits in every batch, within the block.

    The weights must not change meanwhile.
    """
    is_packed, blocks = packs(policy), blocks_of(policy)
    changed = list[nn.Linear]()
    try:
        for linear in (module for module in policy.model.modules() if isinstance(module, nn.Linear)):
            fits = type(linear) is nn.Linear and linear.weight.dtype == policy.dtype and linear.in_features % 2 == 0
            if is_packed and fits:
                changed.append(linear)
                vars(linear)[_PANELS] = cpu_kernels.pack(linear.weight)
                vars(linear)["forward"] = partial(_multiply, linear)
            elif linear.in_features >= blocks.terms:
                changed.append(linear)
                vars(linear)["forward"] = partial(in_blocks, linear.forward, blocks.rows)
        yield
    finally:
        for linear in changed:
            vars(linear).pop(_PANELS, None)
            vars(linear).pop("forward", None)


def _multiply(linear: nn.Linear, input: Tensor) -> Tensor:
    return cpu_kernels.multiply(input, vars(linear)[_PANELS], linear.bias, linear.out_features)


def in_blocks(function: Callable[[Tensor], Tensor], rows: int, input: Tensor) -> Tensor:
    """Apply a function that only takes blocks of a fixed number of rows, [rows, K] -> [rows, N], to an input [..., K].
    The last block is filled up with zeros."""
    blocks = list[Tensor]()
    for block_MK in input.reshape(-1, input.shape[-1]).split(rows):
        missing = rows - len(block_MK)
        filled = nn.functional.pad(block_MK, (0, 0, 0, missing)) if missing else block_MK
        blocks.append(function(filled)[: len(block_MK)])
    return torch.cat(blocks).view(*input.shape[:-1], -1)
