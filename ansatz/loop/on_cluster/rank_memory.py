"""Checks that a trainer rank fits on a GPU of the nodes, by the estimate that `ansatz explain --memory` prints."""

from __future__ import annotations

from collections.abc import Iterable

from ansatz.cluster import gpus
from ansatz.cluster.ray import RayCluster
from ansatz.config.schema import Config
from ansatz.errors import ConfigError, ModelError
from ansatz.models.memory import GIB
from ansatz.models.plan import Hardware, workload_of
from ansatz.models.sharded_memory import rank_parts, total_of
from ansatz.objectives.build import build_objective

_NODE_WAIT_S = 30.0


def check_rank_memory(config: Config, cluster: RayCluster | None) -> None:
    """Raise ConfigError if a trainer rank of the RL stage needs more than all memory of the largest GPU.

    cluster: the machines whose GPUs count; None: this machine. Nothing is refused without a GPU, or if the shape of the
    model is unknown. A rank that needs nearly all memory is not refused either, because estimates can be too high.
    """
    if not config.cluster.trainers or "rl" not in config.stage_names:
        return
    largest = max(_gpu_bytes(cluster), default=0)
    needed = _rank_bytes(config, Hardware(config.cluster.trainers, largest)) if largest else 0
    if needed > largest:
        raise ConfigError(
            f"cluster.trainers = {config.cluster.trainers}: each rank needs about {needed / GIB:.1f} GiB, and the "
            f"largest GPU has {largest / GIB:.1f} GiB. Use more ranks, a smaller train.tokens_per_microbatch, or "
            "model.checkpointing. 'ansatz explain RECIPE --memory 8x80GiB' shows what takes how much."
        )


def _gpu_bytes(cluster: RayCluster | None) -> Iterable[int]:
    if cluster is None:
        return gpus.gpu_bytes()
    reports = cluster.on_each_node(gpus.gpu_bytes, timeout_s=_NODE_WAIT_S).values()
    return [size for report in reports if not isinstance(report, str) for size in report]


def _rank_bytes(config: Config, hardware: Hardware) -> int:
    """Return the peak of one rank; 0 if it is not known."""
    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    try:
        work = workload_of(config, objective, hardware=hardware)
    except ModelError:
        return 0
    return total_of(rank_parts(work, config.cluster.shards))
