"""Rollout workers of a run: the workers that `cluster.workers` requests, and the host in the process of a worker."""

from __future__ import annotations

import os
from pathlib import Path

from ansatz.cluster.base import Needs, Role
from ansatz.config.schema import ClusterSection, Config
from ansatz.environments.base import bind_environment
from ansatz.loop.trainers import copy_of_trained
from ansatz.models.threads import set_threads
from ansatz.rollout.engines import engine_of
from ansatz.rollout.host import SamplerHost
from ansatz.rollout.weight_store import FileWeightStore

HOST = "ansatz.loop.on_cluster.workers:build_host"
"""The function that builds the host of a worker."""


def worker_needs(section: ClusterSection) -> Needs:
    """Return the resources of a worker on the cluster."""
    return Needs(threads=section.threads, gpus=section.gpus)


def explain_workers(cluster: ClusterSection, *, lag: int) -> list[str]:
    """Describe the workers in a sentence; nothing without any."""
    if not cluster.workers:
        return []
    where = f"the Ray cluster at {cluster.address}" if cluster.address else "a Ray of this machine"
    fewest = max(1, cluster.min_workers)
    while_updating = "also while a step is updated" if lag else "and wait while a step is updated"
    return [
        f"{cluster.workers} workers on {where} sample the rollouts, with {cluster.threads} threads each, "
        f"{while_updating}. They change no result. The run stops when fewer than {fewest} are left."
    ]


def worker_role(config: Config, *, model: str, base: str, weights: Path) -> Role:
    """Return the role of a worker's process. model, base: the start of the stage, see `trainers.load_start`.
    weights: the folder of the store."""
    return Role(
        name="sampler",
        target=HOST,
        settings={
            "config": config,
            "model": model,  # not as an absolute path, because it may be the name of a model of the hub
            "base": base,
            "weights": os.path.abspath(weights),
            "folder": os.getcwd(),
        },
        needs=worker_needs(config.cluster),
    )


def build_host(config: Config, *, model: str, base: str, weights: str, folder: str) -> SamplerHost:
    """Build the host of a worker, in its process. folder: the driver's, where paths of the recipe start."""
    os.chdir(folder)
    set_threads(config.cluster.threads)
    # vLLM keeps its own weights. A second copy on its GPUs would take the room of its cache.
    is_vllm = config.rollout.engine.get("name", "native") == "vllm"
    policy = copy_of_trained(config.model, model, base=base, seed=config.seed, device="cpu" if is_vllm else None)
    environment = bind_environment(config.environment, template=config.data.template)
    sampler = engine_of(config.rollout.engine, environment)(policy)
    return SamplerHost(policy, sampler, FileWeightStore(Path(weights)))
