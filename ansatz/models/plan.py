"""The facts about a recipe that the arithmetic of memory needs: the workload and the hardware."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ansatz.config.schema import REWARD_MODEL, Config
from ansatz.errors import ConfigError
from ansatz.models.known_models import ModelShape, model_shape
from ansatz.models.load import compute_dtype
from ansatz.models.lora import DEFAULT_RANK, check_targets, read_adapter
from ansatz.models.memory import GIB, USABLE_FRACTION, Workload, adapter_parameters
from ansatz.models.threads import parallel_microbatches, tokens_of_each, usable_cores
from ansatz.models.tiny import recipe_shape

_HARDWARE = re.compile(r"(?:(\d+)\s*x\s*)?(?:(\d+)\s*x\s*)?(\d+(?:\.\d+)?)\s*(GiB|GB)", re.IGNORECASE)
_COMMENT = re.compile(r"^#\s*Hardware:\s*+([^(\n]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Hardware:
    """One or more GPUs with `bytes` of memory each."""

    devices: int
    bytes: int

    @property
    def usable(self) -> int:
        """Bytes of one device that a plan can use."""
        return int(self.bytes * USABLE_FRACTION)

    def __str__(self) -> str:
        device = f"{self.bytes / GIB:.4g} GiB"
        return device if self.devices == 1 else f"{self.devices} x {device}"


def parse_hardware(text: str) -> Hardware:
    """Parse text such as "24GiB", "8x80GiB", or "16x8x80GiB" for 16 nodes of 8. Raise ConfigError for anything else."""
    match = _HARDWARE.fullmatch(text.strip())
    devices = int(match[1] or 1) * int(match[2] or 1) if match else 0
    if match is None or devices < 1 or float(match[3]) <= 0:
        raise ConfigError(
            f"--memory {text!r}: expected a device's memory, such as 24GiB, of several, such as 8x80GiB, or of several "
            "nodes, such as 16x8x80GiB."
        )
    unit = GIB if match[4].lower() == "gib" else 10**9
    return Hardware(devices, int(float(match[3]) * unit))


def hardware_in(recipe: str) -> Hardware | None:
    """Return the hardware in the recipe's comment, such as "# Hardware: 8x80GiB"; None without such a comment."""
    match = _COMMENT.search(recipe)
    return parse_hardware(match[1]) if match else None


def _critic_shape(config: Config, policy: ModelShape) -> ModelShape:
    """Return the shape of the critic's transformer.

    A critic that starts from the run's reward model has its extra layers too, and is counted as if all of its layers
    were trained.
    """
    path = config.train.critic.path
    if path is None:
        return policy
    section = getattr(config, REWARD_MODEL, None)
    if path != REWARD_MODEL or section is None:
        return model_shape(path, key="train.critic.path")
    if not section.extra_layers:
        return policy
    return replace(
        policy,
        num_layers=policy.num_layers + section.extra_layers,
        hidden_size=policy.hidden_size + section.extra_width,
    )


def workload_of(config: Config, objective: Any, *, hardware: Hardware | None) -> Workload:
    """Return the workload of a recipe with an `Objective`. hardware: None for this CPU."""
    model, rollout, train = config.model, config.rollout, config.train
    shape = recipe_shape(config)
    if model.dtype == "auto" and hardware is not None:
        dtype_bytes = 2
    else:
        dtype_bytes = compute_dtype(model.dtype, torch.device("cpu")).itemsize
    span = rollout.max_prompt_tokens + rollout.max_response_tokens
    minibatch = -(-rollout.rollouts_per_step // train.updates_per_step) * span
    threads = config.threads or usable_cores()
    is_threaded = hardware is None and not model.compile
    num_parallel = parallel_microbatches(
        shape.num_parameters, dtype_bytes=dtype_bytes, on_cpu=is_threaded, threads=threads
    )
    limit = tokens_of_each(train.tokens_per_microbatch, shape.num_parameters, num_parallel)
    microbatch_tokens = minibatch if objective.whole_minibatch else min(max(limit, span), minibatch)
    as_many_as_fit = 256 if hardware is None else rollout.rollouts_per_step  # what max_concurrent: 0 stands for
    max_concurrent = int(rollout.engine.get("max_concurrent", 256)) or as_many_as_fit
    rollouts = min(max(max_concurrent, rollout.samples_per_prompt), rollout.rollouts_per_step)
    trained = None
    if model.lora is not None and (adapter := model.lora.get("path")) is not None:
        trained = sum(value.numel() for value in read_adapter(adapter).weights.values())
    elif model.lora is not None:
        rank = model.lora.get("rank") or DEFAULT_RANK
        targets = model.lora.get("targets") or tuple(shape.linears)
        check_targets(targets, shape.linears)
        trained = adapter_parameters(shape, rank=rank, targets=targets)
    critic = _critic_shape(config, shape) if objective.needs_values else None
    teacher: Mapping[str, Any] = config.teacher or {}
    settings = [teacher, *(teacher.get("by_source") or {}).values()] if teacher else []
    teachers = [model_shape(each["path"], key="teacher.path") for each in settings if each.get("path")]
    return Workload(
        shape=shape,
        dtype_bytes=dtype_bytes,
        max_prompt_tokens=rollout.max_prompt_tokens,
        max_response_tokens=rollout.max_response_tokens,
        rollouts=rollouts,
        prefilled=rollouts // rollout.samples_per_prompt,
        shared_prompts=rollout.samples_per_prompt > 1 and not rollout.partial_rollout_tokens,
        microbatch_tokens=microbatch_tokens,
        targets=microbatch_tokens * rollout.max_response_tokens // span,
        trained=trained,
        four_bits=model.quantize is not None,
        optimizer=str(train.optimizer.get("name", "adamw")),
        checkpointing=model.checkpointing,
        reference=objective.needs_ref and len(teachers) < max(1, len(settings)),
        teachers=teachers,
        critic=critic,
        critic_adapters=trained or 0 if train.critic.path is None else 0,
        parallel_microbatches=min(num_parallel, -(-minibatch // microbatch_tokens)),
        on_gpu=hardware is not None,
    )
