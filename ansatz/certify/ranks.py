"""The gradient of two data-parallel processes. Their rollouts are dealt as those of a trainer (`train.ranks`)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from ansatz.certify.gradients import Gradients
from ansatz.config.schema import Config
from ansatz.models.load import Policy, load_policy
from ansatz.objectives.build import build_objective
from ansatz.process import started_safely
from ansatz.train.batch import TrainBatch
from ansatz.train.ranks import ProcessGroupRanks, deal_rollouts


def two_rank_gradient(batch: TrainBatch, policy: Policy, config: Config) -> Tensor:
    """Return the gradient of two processes that have a share of the rollouts each and sum their gradients."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save(batch, Path(folder) / "batch.pt")
        with started_safely():
            spawn(_rank, args=(folder, policy.path, config), nprocs=2)
        return torch.load(Path(folder) / "gradient.pt")


def _rank(rank: int, folder: str, model_path: str, config: Config) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.set_num_threads(1)
    batch: TrainBatch = torch.load(Path(folder) / "batch.pt", weights_only=False)
    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    gradients = Gradients(load_policy(model_path), objective, config.rollout.temperature)
    ranks = ProcessGroupRanks()
    own_N = deal_rollouts(torch.bincount(batch.packed.segment_T), ranks.size)[ranks.rank]
    gradient = gradients.of(batch.select_rollouts(own_N))
    dist.all_reduce(gradient, op=dist.ReduceOp.SUM)
    if rank == 0:
        torch.save(gradient, Path(folder) / "gradient.pt")
    dist.destroy_process_group()
