"""From a recipe to the arithmetic of its memory (`models.memory`), and the table that `ansatz explain` prints of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ansatz.config.schema import Config
from ansatz.config.toy import TINY
from ansatz.errors import ConfigError
from ansatz.models.known_models import Shape, shape_of
from ansatz.models.load import compute_dtype
from ansatz.models.memory import GIB, USABLE, Part, Workload, adapter_parameters, host_bytes, memory_parts, peak_bytes
from ansatz.models.threads import parallel_microbatches, usable_cores
from ansatz.models.tiny import build_tiny_model
from ansatz.registry import settings_of

_HARDWARE = re.compile(r"(?:(\d+)\s*x\s*)?(\d+(?:\.\d+)?)\s*(GiB|GB)", re.IGNORECASE)
_COMMENT = re.compile(r"^#\s*Hardware:\s*([^(\n]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Hardware:
    """devices GPUs with `bytes` of memory each."""

    devices: int
    bytes: int

    def __str__(self) -> str:
        each = f"{self.bytes / GIB:.4g} GiB"
        return each if self.devices == 1 else f"{self.devices} x {each}"


def parse_hardware(text: str) -> Hardware:
    """ "24GiB", "8x80GiB": GPUs and their memory. ConfigError for all else."""
    found = _HARDWARE.fullmatch(text.strip())
    devices = int(found[1] or 1) if found else 0
    if found is None or devices < 1 or float(found[2]) <= 0:
        raise ConfigError(
            f"--memory {text!r}: expected a device's memory, such as 24GiB, or of several, as in 8x80GiB."
        )
    unit = GIB if found[3].lower() == "gib" else 10**9
    return Hardware(devices, int(float(found[2]) * unit))


def hardware_in(recipe: str) -> Hardware | None:
    """What the recipe's own comment names, "# Hardware: 8x80GiB"; None where it names none."""
    found = _COMMENT.search(recipe)
    return parse_hardware(found[1]) if found else None


def recipe_shape(config: Config) -> Shape:
    """Of the model that the recipe trains: loaded, or built. ModelError where it is not known."""
    model, rollout = config.model, config.rollout
    if model.path is None:
        tiny = {name: one.default for name, one in settings_of(build_tiny_model).items()} | dict(model.tiny)
        names = (
            "hidden_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "intermediate_size",
            "vocab_size",
        )
        sizes = {name: tiny[name] for name in names}
        return Shape(architecture="qwen3", tied=True, max_context=tiny["max_context"], **sizes)
    shape = shape_of(model.path)
    if not model.toy:
        return shape
    context = rollout.max_prompt_tokens + rollout.max_response_tokens
    return shape.at_toy_size(vocab_size=TINY["vocab_size"], max_context=context)


def workload_of(
    config: Config, *, needs_ref: bool, needs_values: bool, whole_minibatch: bool, hardware: Hardware | None
) -> Workload:
    """needs_ref, needs_values, whole_minibatch: what the recipe's objective asks for. hardware: None for this CPU."""
    model, rollout, train = config.model, config.rollout, config.train
    shape = recipe_shape(config)
    if model.dtype == "auto" and hardware is not None:
        dtype_bytes = 2
    else:
        dtype_bytes = compute_dtype(model.dtype, torch.device("cpu")).itemsize
    span = rollout.max_prompt_tokens + rollout.max_response_tokens
    minibatch = -(-rollout.rollouts_per_step // train.updates_per_step) * span
    slice_tokens = minibatch if whole_minibatch else min(max(train.tokens_per_microbatch, span), minibatch)
    threads = config.threads or usable_cores()
    beside = parallel_microbatches(shape.num_parameters, on_cpu=hardware is None, threads=threads)
    slots = 256 if hardware is None else rollout.rollouts_per_step  # where the recipe asks for as many as fit
    asked = int(rollout.engine.get("max_concurrent", 256)) or slots
    rollouts = min(max(asked, rollout.samples_per_prompt), rollout.rollouts_per_step)
    trained = None
    if model.lora is not None:
        rank, targets = int(model.lora.get("rank", 16)), model.lora.get("targets") or tuple(shape.linears)
        trained = adapter_parameters(shape, rank=rank, targets=targets)
    return Workload(
        shape=shape,
        dtype_bytes=dtype_bytes,
        max_prompt_tokens=rollout.max_prompt_tokens,
        max_response_tokens=rollout.max_response_tokens,
        rollouts=rollouts,
        prefilled=rollouts // rollout.samples_per_prompt,
        shared_prompts=rollout.samples_per_prompt > 1 and not rollout.partial_rollout_tokens,
        slice_tokens=slice_tokens,
        targets=slice_tokens * rollout.max_response_tokens // span,
        trained=trained,
        optimizer=str(train.optimizer.get("name", "adamw")),
        checkpointing=model.checkpointing,
        reference=needs_ref,
        critic=needs_values,
        parallel_microbatches=min(beside, -(-minibatch // slice_tokens)),
    )


def memory_table(work: Workload, *, hardware: Hardware | None) -> str:
    """The parts with their formulas, the peak of each phase, and whether it fits."""
    shape, parts = work.shape, memory_parts(work)
    kind = {2: "bfloat16", 4: "float32"}[work.dtype_bytes]
    trained = "all of them" if work.trained is None else f"{work.trained:,} in adapters"
    lines = [
        f"{shape.architecture}, {shape.num_layers} layers, P = {shape.num_parameters:,} parameters, trained: {trained};"
        f" computed in {kind}",
        f"S = {work.rollouts} rollouts; microbatches of T = {work.slice_tokens:,} tokens, "
        f"{work.parallel_microbatches} side by side",
        "",
        f"{'part':32}{'size':>12}  {'when':8}  formula",
        *(f"{part.name:32}{size(part.bytes):>12}  {part.phase:8}  {part.formula}" for part in parts),
        "",
    ]
    return "\n".join([*lines, *_verdict(parts, hardware)])


def _verdict(parts: Sequence[Part], hardware: Hardware | None) -> list[str]:
    devices = 1 if hardware is None else hardware.devices
    peaks, host = peak_bytes(parts, devices=devices), host_bytes(parts)
    peak = max(peaks.values())
    where = "" if devices == 1 else " on each device, with weights, optimiser and rollouts dealt out evenly"
    lines = [f"rollout {size(peaks['rollout'])}, update {size(peaks['update'])}{where}"]
    if host:
        lines.append(f"host memory: {size(host)}")
    if hardware is None:
        return [*lines, f"at most {size(peak)}; --memory 24GiB says whether that fits"]
    usable = int(hardware.bytes * USABLE)
    fits = "fits" if peak <= usable else "does NOT fit"
    lines.append(f"{hardware}: {fits}: {size(peak)} of {size(usable)} usable ({USABLE:.0%})")
    if devices > 1:
        lines.append("this loop runs on one device; for several, sharding is assumed, which it does not do yet")
    return lines


def size(number: int) -> str:
    """Bytes for people: GiB from a tenth on, else MiB."""
    return f"{number / GIB:.2f} GiB" if number >= GIB / 10 else f"{number / 2**20:.2f} MiB"
