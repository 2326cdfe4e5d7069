"""The same bits from the same numbers on a GPU.

On a CPU, and in every forward pass, the operations that are used here always add up in the same order. On a GPU, some
backward passes and sums over groups add with atomic operations, in whatever order threads arrive. Torch has a slower
form of these with a fixed order, which `same_bits` selects.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def same_bits(device: torch.device) -> Iterator[None]:
    """Make operations on a GPU give the same bits each time, within the block. No effect for a CPU.

    Raise RuntimeError for an operation that torch cannot repeat bit for bit.
    """
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch requires it, and it is Hopper's default
    settings: Any = torch.utils.deterministic
    mode, fill = torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    settings.fill_uninitialized_memory = False  # it would write every new tensor twice
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        settings.fill_uninitialized_memory = fill
