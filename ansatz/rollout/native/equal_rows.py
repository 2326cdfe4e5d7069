"""Matrix products that give a row the same bits whatever other rows are in the batch.

On CPUs with AMX, oneDNN divides the sum of a bfloat16 product into blocks whose size depends on the number of rows, if
the sum has at least 512 terms. A response could then depend on its company. Products of a fixed number of rows do not.

Axes: M rows, K terms of a sum, N columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from ansatz.models.load import Policy

MIN_TERMS = 512
BLOCK_ROWS = 128


def needs_blocks(policy: Policy, terms: int) -> bool:
    """Tell whether a product with this many terms could give a row other bits in another batch."""
    is_exposed = terms >= MIN_TERMS and policy.device.type == "cpu" and policy.dtype == torch.bfloat16
    return is_exposed and bool(torch.cpu.get_capabilities().get("amx_bf16"))


@contextmanager
def equal_rows(policy: Policy) -> Iterator[None]:
    """Make the linear layers of the policy give a row the same bits in every batch, within the block."""
    linears = [module for module in policy.model.modules() if isinstance(module, nn.Linear)]
    replaced = [linear for linear in linears if needs_blocks(policy, linear.in_features)]
    for linear in replaced:
        linear.forward = partial(in_blocks, linear.forward)
    try:
        yield
    finally:
        for linear in replaced:
            del linear.forward


def in_blocks(function: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:
    """Map an input [..., K] to [..., N] by a function of rows, which always gets 128 of them: [128, K] -> [128, N]. The
    last block is filled up with zeros."""
    blocks = list[Tensor]()
    for block_MK in input.reshape(-1, input.shape[-1]).split(BLOCK_ROWS):
        missing = BLOCK_ROWS - len(block_MK)
        filled = nn.functional.pad(block_MK, (0, 0, 0, missing)) if missing else block_MK
        blocks.append(function(filled)[: len(block_MK)])
    return torch.cat(blocks).view(*input.shape[:-1], -1)
