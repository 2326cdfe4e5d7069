"""How many bytes the processes of a run on several devices need: trainer ranks with sharded weights, and workers.

Letters as in `models.memory`, and n for the ranks that share the weights. The arithmetic follows `train.fsdp`. A rank
keeps its share of the float32 weights, moments and gradients. It gathers the weights of one layer, and of the next one
ahead of time, in the compute type. The embeddings stay gathered during an update. Before gradients are summed over
ranks, the gradients of one layer are whole: once in the compute type and once in float32. Activations belong to the
rank's own microbatch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ansatz.models.memory import MemoryPart, Workload, part, peak_bytes, rollout_parts, update_parts, weight_parts
from ansatz.models.packing import round_up

_ROWS = 32
"""The sampler's cache grows by this many rollouts."""


def rank_parts(work: Workload, ranks: int) -> tuple[MemoryPart, ...]:
    """List the parts of a trainer rank, which does not sample. ranks: number of ranks that share the weights."""
    held = work.shape.num_parameters + work.adapters
    parts = [
        part("float32 weights", _share(4 * held, ranks), "4 P / n", "always"),
        part("Adam moments", _share(8 * work.num_trained, ranks), "8 P / n", "always"),
        part("gradient sums", _share(4 * work.num_trained, ranks), "4 P / n", "update"),
    ]
    if work.trained is not None:  # `Policy.base` keeps the frozen weights, from which checkpoints are merged
        parts.append(part("whole base", 4 * work.shape.num_parameters, "4 P", "always"))
    elif work.reference:
        parts.append(part("reference model", _share(work.dtype_bytes * held, ranks), "b P / n", "always"))
    sizes = [work.dtype_bytes * each.num_parameters for each in work.teachers]
    parts += [part("teacher", _share(size, ranks), "b P of it / n", "always") for size in sizes]
    if work.critic is not None:
        trained = work.num_critic_trained
        parts.append(part("critic's weights and moments", _share(12 * trained, ranks), "12 C / n", "always"))
        parts.append(part("critic's gradient sums", _share(4 * trained, ranks), "4 C / n", "update"))
    return (*parts, *_gathered(work), *update_parts(work))


def _gathered(work: Workload) -> list[MemoryPart]:
    """Return the gathered parts of the policy or of the critic, the larger one: one is updated after the other."""
    shapes = [work.shape] if work.critic is None else [work.shape, work.critic]
    layer = max(shape.layer_parameters for shape in shapes)
    root = max(shape.num_parameters - shape.num_layers * shape.layer_parameters for shape in shapes)
    parts = [
        part("gathered layers", 2 * work.dtype_bytes * layer, "2 b (one layer)", "update"),
        part("gathered embeddings", work.dtype_bytes * root, "b (embeddings)", "update"),
    ]
    if work.trained is None:
        whole = (4 + work.dtype_bytes) * max(layer, root)
        parts.append(part("gradients before they are summed", whole, "(4 + b) (layer or embeddings)", "update"))
    return parts


def worker_parts(work: Workload, *, devices: int = 1) -> tuple[MemoryPart, ...]:
    """List the parts of one device of a worker, which has a whole model and samples `work.rollouts` at the same time.

    devices: number of devices that its engine divides the model over (vLLM's tensor parallelism); native: one.
    """
    parts = [*weight_parts(dataclasses.replace(work, reference=False, teachers=())), *rollout_parts(work)]
    return tuple(
        dataclasses.replace(each, bytes=_share(each.bytes, devices)) for each in parts if each.phase != "update"
    )


def with_fitting_rollouts(work: Workload, *, devices: int, usable: int) -> Workload:
    """Return the workload of a worker whose sampler lowers the number of concurrent rollouts until they fit."""
    for rollouts in range(round_up(work.rollouts, _ROWS), 0, -_ROWS):
        fewer = dataclasses.replace(
            work, rollouts=min(rollouts, work.rollouts), prefilled=min(work.prefilled, rollouts)
        )
        if rollouts == _ROWS or max(peak_bytes(worker_parts(fewer, devices=devices)).values()) <= usable:
            return fewer
    return work


def total_of(parts: Sequence[MemoryPart]) -> int:
    """Return the higher of the peaks of sampling and updating."""
    return max(peak_bytes(parts).values())


def _share(size: int, devices: int) -> int:
    return -(-size // devices)
