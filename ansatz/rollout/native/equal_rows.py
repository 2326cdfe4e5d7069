"""Matrix products that give a row the same bits whatever other rows are in the batch.

On CPUs with AMX, oneDNN divides the sum of a bfloat16 product into blocks whose size depends on the number of rows, if
the sum has at least 512 terms. A response could then depend on its company. Products of a fixed number of rows do not.

Axes: M rows, K terms of a sum, N columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ansatz.models.load import Policy

_MIN_TERMS = 512
_ROWS = 128


def equal_rows(policy: Policy) -> AbstractContextManager[object]:
    """Make linear layers of the policy give a row the same bits in every batch, within the block, where that takes
    more than the layers' own products."""
    is_needed = policy.device.type == "cpu" and torch.cpu.get_capabilities().get("amx_bf16")
    return _FixedRows() if is_needed and _has_long_sums(policy.model) else nullcontext()


def _has_long_sums(model: nn.Module) -> bool:
    linears: Iterable[Any] = (module for module in model.modules() if isinstance(module, nn.Linear))
    return any(_is_long(linear.weight) for linear in linears)


def _is_long(weight_NK: Tensor) -> bool:
    return weight_NK.dtype == torch.bfloat16 and weight_NK.shape[1] >= _MIN_TERMS


class _FixedRows(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is nn.functional.linear and _is_long(args[1]):
            return linear_in_blocks(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def linear_in_blocks(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `nn.functional.linear` of [..., K] as products of 128 rows each; the last one is filled up with zeros."""
    rows_MK = input.reshape(-1, input.shape[-1])
    blocks = [_linear(block_MK, weight, bias) for block_MK in rows_MK.split(_ROWS)]
    return torch.cat(blocks).view(*input.shape[:-1], len(weight))


def _linear(block_MK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    missing = _ROWS - len(block_MK)
    filled = nn.functional.pad(block_MK, (0, 0, 0, missing)) if missing else block_MK
    return nn.functional.linear(filled, weight_NK, bias_N)[: len(block_MK)]
