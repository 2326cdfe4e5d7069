"""Trainers on several ranks, for tests: each rank is a process, and gloo connects them over the loopback interface."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from test_local import rows
from tiny_models import tiny_folder
from torch.multiprocessing.spawn import start_processes

from ansatz.config.schema import TrainSection
from ansatz.models import lora
from ansatz.models.layers import configure_layers
from ansatz.models.load import load_policy
from ansatz.objectives.build import build_objective
from ansatz.teachers.settings import ONLY, TeacherSettings
from ansatz.teachers.trainer import TaughtTrainer
from ansatz.train.fsdp import ShardedPlacement, rank_mesh
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.placement import ONE_PROCESS, Placement

MODEL = "qwen3, grouped heads, tied"
BASELINES = {0: 0.5, 1: 0.0, 2: 1.0}


def make_trainer(
    model: Path,
    algorithm: dict[str, Any],
    placement: Placement = ONE_PROCESS,
    *,
    adapters: bool = False,
    checkpointing: bool = False,
    critic_from_model: bool = False,
    has_teacher: bool = False,
    dtype: torch.dtype = torch.float32,
    export_dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    **settings: Any,
) -> LocalTrainer:
    policy = load_policy(model, device=device)
    if adapters:
        policy = lora.add_adapters(policy, seed=0, rank=4)
    configure_layers(policy, checkpointing=checkpointing, compiled=False)
    kind: Any = LocalTrainer
    if has_teacher:
        teacher = load_policy(model, device=device)
        with torch.no_grad():
            for parameter in teacher.model.parameters():
                parameter.add_(0.05 * torch.sin(torch.arange(parameter.numel()).view(parameter.shape).float()))
        kind = partial(TaughtTrainer, teachers={ONLY: TeacherSettings(path="teacher")}, loaded={ONLY: teacher})
    trainer: LocalTrainer = kind(
        policy,
        build_objective(algorithm, max_response_tokens=8),
        settings=TrainSection(**{"tokens_per_microbatch": 24, **settings}),
        dtype=dtype,
        schedule=Schedule(lr=1e-3),
        export_dtype=export_dtype,
        placement=placement,
    )
    if critic_from_model:
        critic = load_policy(model, device=device)
        configure_layers(critic, checkpointing=checkpointing, compiled=False)
        trainer.start_critic_from(critic)
    return trainer


def train(trainer: LocalTrainer, *, first: int, last: int) -> list[dict[str, float]]:
    """Steps on the same samples. Returns the metrics of each, with what it saw of each rollout."""
    reports = [
        trainer.update(trainer.batch(rows(), baseline_of_group=BASELINES), step=step) for step in range(first, last + 1)
    ]
    return [
        report.metrics
        | {f"{place}/{name}": value for place, row in report.rollouts.items() for name, value in row.items()}
        for report in reports
    ]


def weights_of(trainer: LocalTrainer) -> dict[str, torch.Tensor]:
    """The float32 weights as wholes, also of the critic. On the first rank only."""
    weights = trainer.placement.whole(trainer.optimizer.weights())
    if trainer.critic is not None:
        critic = trainer.placement.whole(trainer.critic.optimizer.weights())
        weights |= {f"critic/{name}": value for name, value in critic.items()}
    return {name: value.clone() for name, value in weights.items()}


def model_folder(folder: Path) -> Path:
    return tiny_folder(folder, MODEL)


Work = Callable[..., Any]


def on_ranks(size: int, work: Work, *arguments: Any, device: str = "cpu", shard_size: int = 0) -> Any:
    """work(placement, *arguments) on every rank; what it returned on the first. On GPUs, NCCL connects the ranks.

    shard_size: ranks that share one copy of the weights; 0: all.
    """
    # Ranks are forks of a process that has imported the trainer, which saves them the seconds that torch takes.
    multiprocessing.set_forkserver_preload(["ansatz.loop.trainers"])
    with tempfile.TemporaryDirectory() as folder:
        torch.save(arguments, Path(folder) / "arguments.pt")
        start_processes(_rank, (size, folder, work, device, shard_size), nprocs=size, start_method="forkserver")
        return torch.load(Path(folder) / "result.pt", weights_only=False)


def _rank(rank: int, size: int, folder: str, work: Work, device: str, shard_size: int) -> None:
    torch.set_num_threads(1)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=size)
    arguments = torch.load(Path(folder) / "arguments.pt", weights_only=False)
    placement = ShardedPlacement(rank_mesh(device, size=size, shard_size=shard_size))
    result = work(placement, *arguments)
    if rank == 0:
        torch.save(result, Path(folder) / "result.pt")
    dist.barrier()  # a rank that ends while others still talk to it ends them
    dist.destroy_process_group()
