"""Rollout workers of a run: what `cluster.workers` asks for, what a worker's process hosts, and the pool over them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ansatz.cluster.base import Needs, Role
from ansatz.cluster.ray import RayCluster, check_installed
from ansatz.cluster.room import Request
from ansatz.config.recipe import restore
from ansatz.config.schema import ClusterSection, Config
from ansatz.environments.base import bind_environment
from ansatz.loop.rank_memory import RankBytes, check_rank_memory
from ansatz.loop.trainers import check_trainers, copy_of_trained, rank_needs
from ansatz.loop.training_stage import TrainingStage
from ansatz.models.threads import set_threads
from ansatz.rollout.engines import engine_of
from ansatz.rollout.host import SamplerHost
from ansatz.rollout.pool import Pool
from ansatz.rollout.pooled_tickets import PooledTickets
from ansatz.rollout.ticket import Landed
from ansatz.rollout.weight_store import FileWeightStore
from ansatz.rollout.worker_set import Limits

HOST = "ansatz.loop.workers:build_host"
"""The function that builds what a worker hosts."""


def check_workers(config: Config) -> None:
    """MissingExtraError if the recipe asks for workers or ranks and Ray is not installed. ConfigError for what ranks
    cannot do."""
    check_trainers(config)
    if config.cluster.workers or config.cluster.trainers:
        check_installed()


def check_room(section: ClusterSection, peak_on: RankBytes) -> None:
    """Raise RolloutError, with the sum, if the Ray cluster of the recipe could not hold the workers and the
    trainer ranks even if it were empty. Raise ConfigError if a rank needs more memory than its GPU has.

    A Ray of this machine is started when it is needed, and its room is checked then.
    """
    if not (section.workers or section.trainers):
        return
    if not section.address:
        check_rank_memory(section, peak_on, None)
        return
    with closing(RayCluster(section.address)) as cluster:
        cluster.check_room(_requests(section, cluster))
        check_rank_memory(section, peak_on, cluster)


def _needs(section: ClusterSection) -> Needs:
    return Needs(threads=section.threads, gpus=section.gpus)


def _requests(section: ClusterSection, cluster: RayCluster) -> list[Request]:
    """Return what the ranks of the trainer and the workers take together."""
    trainers = Request(
        name="trainer ranks",
        count=section.trainers,
        each=cluster.resources(rank_needs(section)),
        minimum=section.min_trainers or None,
    )
    workers = Request(
        name="rollout workers",
        count=section.workers,
        each=cluster.resources(_needs(section)),
        minimum=section.min_workers or None,
    )
    return [request for request in (trainers, workers) if request.count]


def explain_workers(cluster: ClusterSection, *, lag: int) -> list[str]:
    """Return what the workers do, in a sentence; nothing without any."""
    if not cluster.workers:
        return []
    where = f"the Ray cluster at {cluster.address}" if cluster.address else "a Ray of this machine"
    fewest = max(1, cluster.min_workers)
    while_updating = "also while a step is updated" if lag else "and wait while a step is updated"
    return [
        f"{cluster.workers} workers on {where} sample the rollouts, with {cluster.threads} threads each, "
        f"{while_updating}. They change no result. The run stops when fewer than {fewest} are left."
    ]


def pooled_tickets(
    stage: TrainingStage, *, model: str, store: FileWeightStore, on_landed: Callable[[Landed], None]
) -> PooledTickets:
    """The workers of a stage, as a source of tickets. model: what the stage began with."""
    config, cluster = stage.config, stage.config.cluster
    role = Role(
        name="sampler",
        target=HOST,
        settings={
            "recipe": config.model_dump(mode="json"),
            "model": os.path.abspath(model),
            "weights": os.path.abspath(store.folder),
            "folder": os.getcwd(),
        },
        needs=_needs(cluster),
    )
    ray = RayCluster(cluster.address)
    ray.check_room(_requests(cluster, ray))
    pool = Pool(
        ray,
        role,
        num_workers=cluster.workers,
        min_workers=max(1, cluster.min_workers),
        limits=Limits(probe=cluster.probe, lease=cluster.lease, start=cluster.start, patience=cluster.patience),
        exact=config.rollout.engine.get("name", "native") == "native" and stage.trainer.device.type == "cpu",
    )
    return PooledTickets(
        pool,
        store,
        on_landed=on_landed,
        on_event=lambda step, text: stage.tracker.event(step, "worker", text),
        stall_s=cluster.stall,
    )


def build_host(recipe: Mapping[str, Any], *, model: str, weights: str, folder: str) -> SamplerHost:
    """What a worker hosts; called in its process. folder: that of the driver, from which paths of the recipe start."""
    os.chdir(folder)
    config = restore(dict(recipe))
    set_threads(config.cluster.threads)
    # vLLM has weights of its own: a second copy on its GPUs would take the room of its cache.
    is_vllm = config.rollout.engine.get("name", "native") == "vllm"
    policy = copy_of_trained(config, model, device="cpu" if is_vllm else None)
    environment = bind_environment(config.environment, template=config.data.template)
    sampler = engine_of(config.rollout.engine, environment)(policy)
    return SamplerHost(policy, sampler, FileWeightStore(Path(weights)))
