"""Data parallelism: each rank has some rollouts of the step, with the token weights of the whole step.

A token's weight is its share of the whole batch. Gradients of ranks are therefore summed, never averaged, and nothing
depends on the number of ranks or on which rank has which rollouts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from ansatz.certify.gradients import Gradients
from ansatz.config.schema import Config
from ansatz.models.load import Policy, load_policy
from ansatz.objectives.build import build_objective
from ansatz.train.batch import TrainBatch


def own_rollouts(num_rollouts: int, *, rank: int, world_size: int) -> Tensor:
    """Indices of the rollouts of a rank. They are dealt in turn, so that every rank gets long and short ones."""
    return torch.arange(rank, num_rollouts, world_size)


def sum_over_ranks(gradients: Iterable[Tensor]) -> None:
    """Sum each tensor over all ranks of the default process group, in place."""
    for gradient in gradients:
        dist.all_reduce(gradient, op=dist.ReduceOp.SUM)


def two_rank_gradient(batch: TrainBatch, policy: Policy, config: Config) -> Tensor:
    """The gradient of two processes that have half of the rollouts each and sum their gradients."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save(batch, Path(folder) / "batch.pt")
        spawn(_rank, args=(folder, policy.path, config), nprocs=2)
        return torch.load(Path(folder) / "gradient.pt")


def _rank(rank: int, folder: str, model_path: str, config: Config) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.set_num_threads(1)
    batch: TrainBatch = torch.load(Path(folder) / "batch.pt", weights_only=False)
    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    gradients = Gradients(load_policy(model_path), objective, config.rollout.temperature)
    gradient = gradients.of(batch.select_rollouts(own_rollouts(batch.num_rollouts, rank=rank, world_size=2)))
    sum_over_ranks([gradient])
    if rank == 0:
        torch.save(gradient, Path(folder) / "gradient.pt")
    dist.destroy_process_group()
