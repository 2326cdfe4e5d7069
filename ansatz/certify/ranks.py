"""Data parallelism: each rank has its own rollouts of the step, all have the weights of the whole step.

Because a token's weight is its share of the whole batch, ranks' gradients are summed, never averaged: nothing depends
on how many ranks there are or who has which rollouts.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor


def own_rollouts(num_rollouts: int, *, rank: int, world_size: int) -> Tensor:
    """The rollouts of a rank, dealt in turn so that lengths spread evenly."""
    return torch.arange(rank, num_rollouts, world_size)


def sum_over_ranks(gradients: Iterable[Tensor]) -> None:
    """In place, over all ranks of the default process group."""
    for gradient in gradients:
        dist.all_reduce(gradient, op=dist.ReduceOp.SUM)
