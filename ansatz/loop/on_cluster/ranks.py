"""Trainer ranks of a run: the ranks that `cluster.trainers` requests, and the host in the process of a rank."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansatz.cluster.base import Cluster, Needs, Role
from ansatz.config.schema import ClusterSection, Config
from ansatz.errors import ConfigError
from ansatz.loop.workplace import Spec
from ansatz.models.load import load_tokenizer
from ansatz.models.threads import set_threads
from ansatz.train.distributed import DistributedTrainer, scratch_folder
from ansatz.train.fsdp import check_sharded_optimizer
from ansatz.train.rank_group import RankGroup, RankLimits
from ansatz.train.rank_host import RankHost

HOST = "ansatz.loop.on_cluster.ranks:build_rank"
"""The function that builds the host of a rank."""


def check_ranks(config: Config) -> None:
    """Raise ConfigError for a recipe, in any stage, that trainer ranks cannot run."""
    if not config.cluster.trainers:
        return
    check_sharded_optimizer(config.train.optimizer)
    if config.model.quantize is not None:
        raise ConfigError(
            f"cluster.trainers = {config.cluster.trainers} with model.quantize = {config.model.quantize}: weights of 4 "
            "bits cannot be sharded over ranks. Leave one of the two out."
        )


def explain_ranks(section: ClusterSection) -> list[str]:
    """Describe the trainer ranks in a sentence; nothing without any."""
    if not section.trainers:
        return []
    copy = "" if section.workers else " The run's own process samples, with a copy of the model."
    return [
        f"{section.trainers} ranks with {section.trainer_threads} threads each train together, with the weights "
        "sharded over them. Their number changes the result only by rounding. If one is lost, all are started again "
        f"from the last checkpoint.{copy}"
    ]


def on_ranks(
    spec: Spec[Any], section: ClusterSection, cluster: Cluster, folder: Path, *, on_answer: Callable[[], None]
) -> DistributedTrainer:
    """Start the trainer on the ranks that the recipe requests. folder: of the stage. on_answer: see `RankGroup`."""
    role = Role(
        name="trainer",
        target=HOST,
        settings={
            "spec": spec,
            "section": section,
            "scratch": str(scratch_folder(folder).absolute()),
            "folder": os.getcwd(),
        },
        needs=rank_needs(section),
        together=True,
    )
    limits = RankLimits(start=section.start, call=section.patience, patience=section.patience)
    min_size = section.min_trainers or section.trainers
    group = RankGroup(cluster, role, size=section.trainers, min_size=min_size, limits=limits, on_answer=on_answer)
    return DistributedTrainer(group, tokenizer=load_tokenizer(Path(spec.path)), stage_folder=folder)


def rank_needs(section: ClusterSection) -> Needs:
    """Return the resources of a rank on the cluster."""
    return Needs(threads=section.trainer_threads, gpus=section.trainer_gpus)


def build_rank(spec: Spec[Any], *, section: ClusterSection, scratch: str, folder: str) -> RankHost:
    """Build the host of a rank, in its process. folder: the driver's, where paths of the recipe start."""
    os.chdir(folder)
    set_threads(section.trainer_threads)
    return RankHost(build=spec.build, scratch=Path(scratch), timeout_s=section.patience, shard_size=section.shard_size)
