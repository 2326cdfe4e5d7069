"""The memory estimate of a recipe (by `models.memory`), and the table that `ansatz explain` prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ansatz.config.schema import Config
from ansatz.config.toy import TINY
from ansatz.errors import ConfigError
from ansatz.models.known_models import ModelShape, model_shape
from ansatz.models.load import compute_dtype
from ansatz.models.memory import (
    GIB,
    USABLE_FRACTION,
    MemoryPart,
    Workload,
    adapter_parameters,
    host_bytes,
    memory_parts,
    peak_bytes,
)
from ansatz.models.threads import parallel_microbatches, usable_cores
from ansatz.models.tiny import build_tiny_model, tiny_shape
from ansatz.registry import settings_of

_HARDWARE = re.compile(r"(?:(\d+)\s*x\s*)?(\d+(?:\.\d+)?)\s*(GiB|GB)", re.IGNORECASE)
_TINY_SIZES = (
    "hidden_size",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_context",
)
_COMMENT = re.compile(r"^#\s*Hardware:\s*([^(\n]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Hardware:
    """One or more GPUs with `bytes` of memory each."""

    devices: int
    bytes: int

    def __str__(self) -> str:
        device = f"{self.bytes / GIB:.4g} GiB"
        return device if self.devices == 1 else f"{self.devices} x {device}"


def parse_hardware(text: str) -> Hardware:
    """Parse text such as "24GiB" or "8x80GiB". Raises ConfigError for anything else."""
    match = _HARDWARE.fullmatch(text.strip())
    devices = int(match[1] or 1) if match else 0
    if match is None or devices < 1 or float(match[2]) <= 0:
        raise ConfigError(
            f"--memory {text!r}: expected a device's memory, such as 24GiB, or of several, such as 8x80GiB."
        )
    unit = GIB if match[3].lower() == "gib" else 10**9
    return Hardware(devices, int(float(match[2]) * unit))


def hardware_in(recipe: str) -> Hardware | None:
    """The hardware in the recipe's comment, such as "# Hardware: 8x80GiB"; None without such a comment."""
    match = _COMMENT.search(recipe)
    return parse_hardware(match[1]) if match else None


def recipe_shape(config: Config) -> ModelShape:
    """The shape of the model that the recipe loads or builds. Raises ModelError if it is not known."""
    model, rollout = config.model, config.rollout
    if model.path is None:
        defaults = {name: setting.default for name, setting in settings_of(build_tiny_model).items()}
        tiny = defaults | dict(model.tiny)
        return tiny_shape(**{name: tiny[name] for name in _TINY_SIZES})
    shape = model_shape(model.path)
    if not model.toy:
        return shape
    context = rollout.max_prompt_tokens + rollout.max_response_tokens
    return shape.at_toy_size(vocab_size=TINY["vocab_size"], max_context=context)


def workload_of(
    config: Config, *, needs_ref: bool, needs_values: bool, whole_minibatch: bool, hardware: Hardware | None
) -> Workload:
    """The workload of a recipe. needs_ref, needs_values, whole_minibatch: what its objective needs. hardware: None for
    this CPU."""
    model, rollout, train = config.model, config.rollout, config.train
    shape = recipe_shape(config)
    if model.dtype == "auto" and hardware is not None:
        dtype_bytes = 2
    else:
        dtype_bytes = compute_dtype(model.dtype, torch.device("cpu")).itemsize
    span = rollout.max_prompt_tokens + rollout.max_response_tokens
    minibatch = -(-rollout.rollouts_per_step // train.updates_per_step) * span
    microbatch_tokens = minibatch if whole_minibatch else min(max(train.tokens_per_microbatch, span), minibatch)
    threads = config.threads or usable_cores()
    num_parallel = parallel_microbatches(shape.num_parameters, on_cpu=hardware is None, threads=threads)
    as_many_as_fit = 256 if hardware is None else rollout.rollouts_per_step  # what max_concurrent: 0 stands for
    max_concurrent = int(rollout.engine.get("max_concurrent", 256)) or as_many_as_fit
    rollouts = min(max(max_concurrent, rollout.samples_per_prompt), rollout.rollouts_per_step)
    trained = None
    if model.lora is not None:
        rank, targets = int(model.lora.get("rank", 16)), model.lora.get("targets") or tuple(shape.linears)
        trained = adapter_parameters(shape, rank=rank, targets=targets)
    critic = None
    if needs_values:
        critic = shape if train.critic.path is None else model_shape(train.critic.path, key="train.critic.path")
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
        reference=needs_ref,
        critic=critic,
        critic_adapters=trained or 0 if train.critic.path is None else 0,
        parallel_microbatches=min(num_parallel, -(-minibatch // microbatch_tokens)),
        on_gpu=hardware is not None,
    )


def memory_table(work: Workload, *, hardware: Hardware | None) -> str:
    """A table of the parts with their formulas, the peak of each phase, and whether it fits."""
    shape, parts = work.shape, memory_parts(work)
    kind = {2: "bfloat16", 4: "float32"}[work.dtype_bytes]
    trained = "all of them" if work.trained is None else f"{work.trained:,} in adapters"
    critic = [] if work.critic is None else [f"C = {work.num_critic_trained:,} trained parameters of the critic"]
    kind += " on weights of 4 bits" if work.four_bits else ""
    lines = [
        f"{shape.architecture}, {shape.num_layers} layers, P = {shape.num_parameters:,} parameters, trained: {trained};"
        f" computed in {kind}",
        f"S = {work.rollouts} rollouts; microbatches of T = {work.microbatch_tokens:,} tokens, "
        f"{work.parallel_microbatches} in parallel",
        *critic,
        "",
        f"{'part':32}{'size':>12}  {'when':8}  formula",
        *(f"{part.name:32}{format_bytes(part.bytes):>12}  {part.phase:8}  {part.formula}" for part in parts),
        "",
    ]
    return "\n".join([*lines, *_verdict(parts, hardware)])


def _verdict(parts: Sequence[MemoryPart], hardware: Hardware | None) -> list[str]:
    devices = 1 if hardware is None else hardware.devices
    peaks, host = peak_bytes(parts, devices=devices), host_bytes(parts)
    peak = max(peaks.values())
    per_device = "" if devices == 1 else " on each device, with weights, optimizer and rollouts divided evenly"
    lines = [f"rollout {format_bytes(peaks['rollout'])}, update {format_bytes(peaks['update'])}{per_device}"]
    if host:
        lines.append(f"host memory: {format_bytes(host)}")
    if hardware is None:
        return [*lines, f"at most {format_bytes(peak)}; add --memory 24GiB to see whether that fits"]
    usable = int(hardware.bytes * USABLE_FRACTION)
    fits = "fits" if peak <= usable else "does NOT fit"
    lines.append(f"{hardware}: {fits}: {format_bytes(peak)} of {format_bytes(usable)} usable ({USABLE_FRACTION:.0%})")
    if devices > 1:
        lines.append("this assumes sharding over the devices; training runs on one device and does not shard yet")
    return lines


def format_bytes(number: int) -> str:
    """In GiB from a tenth of a GiB on, otherwise in MiB."""
    return f"{number / GIB:.2f} GiB" if number >= GIB / 10 else f"{number / 2**20:.2f} MiB"
