"""How many bytes a run needs, by part: arithmetic alone, before anything is loaded.

Letters in the formulas: P parameters, b bytes of a number of the compute type, L layers, H hidden, I intermediate,
Q = query heads x head size, K = key heads x head size, V vocabulary, S rollouts decoded side by side, T tokens of a
slice, padding included. A slice's activations are what autograd saves, counted in `models.attention`, `models.norm` and
transformers' own layers on a GPU (or in float32); parts that peak at different moments of a phase are added up, so a
phase's sum is an upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ansatz.models.known_models import Shape
from ansatz.models.logps import CHUNK_LOGITS
from ansatz.models.packing import round_up

Phase = Literal["always", "rollout", "update", "host"]
GIB = 2**30
USABLE = 0.92
"""Share of a device's memory that may be planned: the rest is the CUDA context, kernels and fragmentation."""

_LOGIT_COPIES = 5  # logits, log-probs, probabilities, their gradient, one temporary
_DRAW_COPIES = 4  # logits, probabilities, their running sum, one temporary
_CHUNK_FORMULA = f"at most {4 * CHUNK_LOGITS // 2**20} MiB, "
_BLOCK_8BIT = 256  # values that share a float32 scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """phase: when it is held; "host": in the CPU's memory, whenever."""

    name: str
    bytes: int
    formula: str
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the arithmetic needs of a recipe.

    dtype_bytes: of the compute type. trained: parameters that learn; None: all. optimizer: adamw | adamw_8bit |
    adamw_offload. rollouts: decoded side by side. prefilled: prompts that are prefilled at once. shared_prompts:
    whether the cache holds these once for their groups, and not once a rollout. slice_tokens: of one slice, padding
    included. targets: tokens of a slice whose log-prob is computed.
    """

    shape: Shape
    dtype_bytes: int
    max_prompt_tokens: int
    max_response_tokens: int
    rollouts: int
    prefilled: int
    slice_tokens: int
    targets: int
    shared_prompts: bool = False
    trained: int | None = None
    optimizer: str = "adamw"
    checkpointing: bool = False
    reference: bool = False
    critic: bool = False
    parallel_microbatches: int = 1

    @property
    def num_trained(self) -> int:
        return self.shape.num_parameters if self.trained is None else self.trained

    @property
    def adapters(self) -> int:
        return 0 if self.trained is None else self.trained


def memory_parts(work: Workload) -> tuple[Part, ...]:
    return (*_weights(work), *_optimizer(work), *_critic(work), *_rollout(work), *_update(work))


def peak_bytes(parts: Sequence[Part], *, devices: int = 1) -> dict[str, int]:
    """Of one device, by phase. With several, what is always held and the rollouts are dealt out evenly, as sharded
    training does; each device computes slices of its own."""
    sums = {
        phase: sum(part.bytes for part in parts if part.phase == phase) for phase in ("always", "rollout", "update")
    }
    return {
        "rollout": (sums["always"] + sums["rollout"]) // devices,
        "update": sums["always"] // devices + sum(_share(part, devices) for part in parts if part.phase == "update"),
    }


def host_bytes(parts: Sequence[Part]) -> int:
    return sum(part.bytes for part in parts if part.phase == "host")


def layer_activation_bytes(shape: Shape, dtype_bytes: int) -> int:
    """Of one token in one layer: b (4I + 4H + 3Q + 2K) + float32 scales of the norms and of the attention's softmax."""
    numbers = 4 * shape.intermediate_size + 4 * shape.hidden_size + 3 * shape.query_size + 2 * shape.kv_size
    scales = 2 + shape.num_heads
    if shape.architecture == "qwen3":  # norms on queries and keys
        numbers += shape.query_size + shape.kv_size
        scales += shape.num_heads + shape.num_kv_heads
    return dtype_bytes * numbers + 4 * scales


def activation_bytes(shape: Shape, dtype_bytes: int, *, checkpointing: bool = False) -> int:
    """Of one token in the whole transformer, what the backward pass needs. With checkpointing each layer's input, and
    one layer at a time in full."""
    layer = layer_activation_bytes(shape, dtype_bytes)
    ends = dtype_bytes * (shape.hidden_size + 2 * shape.head_dim) + 4 + 5 * 8  # final norm, rotary tables, indices
    if checkpointing:
        return shape.num_layers * dtype_bytes * shape.hidden_size + layer + ends
    return shape.num_layers * layer + ends


def adapter_parameters(shape: Shape, *, rank: int, targets: Sequence[str]) -> int:
    """Of LoRA on these linear maps of every layer: rank x (inputs + outputs) each."""
    return shape.num_layers * sum(rank * sum(shape.linears[name]) for name in targets)


def _share(part: Part, devices: int) -> int:
    return part.bytes // devices if "gradient" in part.name else part.bytes


def _weights(work: Workload) -> list[Part]:
    size, each = work.shape.num_parameters, work.dtype_bytes
    parts = [_part("weights", each * (size + work.adapters), "b P", "always")]
    if work.reference and work.trained is None:
        parts.append(_part("reference model", each * size, "b P", "always"))
    return parts


def _optimizer(work: Workload) -> list[Part]:
    trained, each = work.num_trained, work.dtype_bytes
    offloaded = work.optimizer == "adamw_offload"
    held: Phase = "host" if offloaded else "always"
    parts: list[Part] = []
    if each != 4 or offloaded:
        parts.append(_part("float32 masters", 4 * trained, "4 P", held))
    if work.optimizer == "adamw_8bit":
        moments = 2 * trained + 2 * 4 * -(-trained // _BLOCK_8BIT)
        parts.append(_part("Adam moments, 8 bit", moments, f"2 P + 8 P / {_BLOCK_8BIT}", held))
    else:
        parts.append(_part("Adam moments", 8 * trained, "8 P", held))
    return [
        *parts,
        _part("gradient sums", 4 * trained, "4 P", "host" if offloaded else "update"),
        _part("a slice's gradients", each * trained * work.parallel_microbatches, "b P", "update"),
    ]


def _critic(work: Workload) -> list[Part]:
    if not work.critic:
        return []
    size, each = work.shape.num_parameters + work.shape.hidden_size + 1, work.dtype_bytes
    kept = each + (4 if each != 4 else 0) + 8
    return [
        _part("critic, its masters and moments", kept * size, f"{kept} P", "always"),
        _part("the critic's gradients", (4 + each) * size, f"{4 + each} P", "update"),
    ]


def _rollout(work: Workload) -> list[Part]:
    shape, each = work.shape, work.dtype_bytes
    of_token = 2 * shape.num_layers * shape.kv_size * each
    prefill_tokens = round_up(work.prefilled, 16) * round_up(work.max_prompt_tokens, 16)
    if work.shared_prompts:
        cached = round_up(work.rollouts, 32) * round_up(work.max_response_tokens, 32)
        cached += work.prefilled * round_up(work.max_prompt_tokens, 16)
        formula = "(S response + prompts) 2 L K b"
    else:
        cached = round_up(work.rollouts, 32) * round_up(work.max_prompt_tokens + work.max_response_tokens, 32)
        formula = "S (prompt + response) 2 L K b"
    working = each * (3 * shape.intermediate_size + 4 * shape.hidden_size + 2 * shape.query_size)
    return [
        _part("key/value cache", cached * of_token, formula, "rollout"),
        _part("prefill", prefill_tokens * (of_token + working), "prompts (2 L K + 3 I + 4 H + 2 Q) b", "rollout"),
        _part(
            "logits to draw from", _DRAW_COPIES * _chunk(shape, work.rollouts), _CHUNK_FORMULA + "4 copies", "rollout"
        ),
    ]


def _update(work: Workload) -> list[Part]:
    shape, each, tokens = work.shape, work.dtype_bytes, work.slice_tokens * work.parallel_microbatches
    formula = "T b (L H + one layer)" if work.checkpointing else "T L b (4 I + 4 H + 3 Q + 2 K)"
    of_token = activation_bytes(shape, each, checkpointing=work.checkpointing)
    backward = each * (3 * shape.intermediate_size + 2 * shape.hidden_size)
    head = shape.vocab_size * shape.hidden_size * (4 + each)
    return [
        _part("activations of a slice", tokens * of_token, formula, "update"),
        _part("one layer's backward pass", tokens * backward, "T b (3 I + 2 H)", "update"),
        _part("hidden states of the targets", 2 * work.targets * shape.hidden_size * each, "2 T b H", "update"),
        _part(
            "a chunk of logits",
            _LOGIT_COPIES * _chunk(shape, work.targets) * work.parallel_microbatches,
            _CHUNK_FORMULA + "5 copies",
            "update",
        ),
        _part("the output embedding's sums", head * work.parallel_microbatches, "V H (4 + b)", "update"),
    ]


def _chunk(shape: Shape, rows: int) -> int:
    """Bytes of the float32 logits that are there at once, of so many rows in all."""
    return min(rows, max(1, CHUNK_LOGITS // shape.vocab_size)) * shape.vocab_size * 4


def _part(name: str, size: int, formula: str, phase: Phase) -> Part:
    return Part(name=name, bytes=size, formula=formula, phase=phase)
