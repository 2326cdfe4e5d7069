"""How many bytes a run needs, by part. This is arithmetic: nothing is loaded.

Letters in the formulas: P parameters, C trained parameters of a critic, b bytes per number of the compute type, L
layers, H hidden, I intermediate, Q = query heads x head size, K = key heads x head size, V vocabulary, S rollouts
decoded at the same time, T tokens of a microbatch, padding included, Z weights of 4 bits.

The activations of a microbatch are the tensors that autograd saves, counted for `models.attention`,
`models.layer_operations` and transformers' own layers on a GPU; a CPU also keeps the probabilities of attention if rows
are short. The parts of a phase are added up although they peak at different moments, so the sum is an upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ansatz.models.four_bit import BLOCK, SCALE_BLOCK, TABLE_BYTES, stored_bytes
from ansatz.models.known_models import ModelShape
from ansatz.models.logps import kept_rows, rows_per_chunk
from ansatz.models.packing import round_up

Phase = Literal["always", "rollout", "update", "host"]
GIB = 2**30
USABLE_FRACTION = 0.92
"""Fraction of a device's memory that a plan can use. The rest is the CUDA context, kernels and fragmentation."""

_LOGIT_COPIES = 5  # logits, log-probs, probabilities, their gradient, one temporary
_SAMPLING_COPIES = 4  # logits, probabilities, their running sum, one temporary
_BLOCK_8BIT = 256  # values that share a float32 scale


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """phase: when the memory is held; "host": in the CPU's memory, at any time."""

    name: str
    bytes: int
    formula: str
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The facts about a recipe that the arithmetic needs.

    dtype_bytes: per number of the compute type.
    rollouts: how many are decoded at the same time.
    prefilled: prompts that are prefilled at once.
    microbatch_tokens: tokens of one microbatch, padding included.
    targets: tokens of a microbatch whose log-probs are computed.
    shared_prompts: the cache holds a prompt once per group, not once per rollout.
    trained: number of parameters that learn; None: all.
    four_bits: the linear layers have weights of 4 bits (`models.four_bit`).
    optimizer: adamw | adamw_8bit | adamw_offload.
    teachers: the shapes of frozen models that RL learns from, besides the policy itself.
    critic: the shape of the critic's transformer; None without a critic.
    critic_adapters: adapters that the critic trains on the frozen weights that it shares with the policy; 0: it is a
    model of its own, which is trained as a whole.
    on_gpu: logits are computed in larger chunks there.
    """

    shape: ModelShape
    dtype_bytes: int
    max_prompt_tokens: int
    max_response_tokens: int
    rollouts: int
    prefilled: int
    microbatch_tokens: int
    targets: int
    shared_prompts: bool = False
    trained: int | None = None
    four_bits: bool = False
    optimizer: str = "adamw"
    checkpointing: bool = False
    reference: bool = False
    teachers: Sequence[ModelShape] = ()
    critic: ModelShape | None = None
    critic_adapters: int = 0
    parallel_microbatches: int = 1
    on_gpu: bool = False

    @property
    def num_trained(self) -> int:
        return self.shape.num_parameters if self.trained is None else self.trained

    @property
    def adapters(self) -> int:
        return 0 if self.trained is None else self.trained

    @property
    def num_critic_trained(self) -> int:
        """The number of parameters that a critic holds and trains of its own, with its value head; 0 without a
        critic."""
        if self.critic is None:
            return 0
        return (self.critic_adapters or self.critic.num_parameters) + self.critic.hidden_size + 1


def memory_parts(work: Workload) -> tuple[MemoryPart, ...]:
    """List the parts of the memory of one process that samples and trains.

    `models.sharded_memory` counts ranks and workers.
    """
    trained = _trained(work, work.num_trained, letter="P")
    return (*weight_parts(work), *trained, *_critic(work), *rollout_parts(work), *update_parts(work))


def peak_bytes(parts: Sequence[MemoryPart]) -> dict[str, int]:
    """Return the peak of a device, by phase."""
    sums = {
        phase: sum(each.bytes for each in parts if each.phase == phase) for phase in ("always", "rollout", "update")
    }
    return {phase: sums["always"] + sums[phase] for phase in ("rollout", "update")}


def host_bytes(parts: Sequence[MemoryPart]) -> int:
    return sum(each.bytes for each in parts if each.phase == "host")


def layer_activation_bytes(shape: ModelShape, dtype_bytes: int) -> int:
    """Count the bytes per token in one layer: b (4I + 4H + 3Q + 2K) + float32 scales of the norms and the
    attention's softmax."""
    numbers = (
        4 * shape.intermediate_size
        + (2 + shape.num_norms) * shape.hidden_size
        + 3 * shape.query_size
        + 2 * shape.kv_size
    )
    scales = shape.num_norms + shape.num_heads
    if shape.has_head_norms:
        numbers += shape.query_size + shape.kv_size
        scales += shape.num_heads + shape.num_kv_heads
    return dtype_bytes * numbers + 4 * scales


def activation_bytes(shape: ModelShape, dtype_bytes: int, *, checkpointing: bool = False) -> int:
    """Count the bytes per token that the backward pass needs of the whole transformer.

    With checkpointing: each layer's input, and all activations of one layer at a time.
    """
    layer = layer_activation_bytes(shape, dtype_bytes)
    ends = dtype_bytes * (shape.hidden_size + 2 * shape.head_dim) + 4 + 5 * 8  # final norm, rotary tables, indices
    if checkpointing:
        return shape.num_layers * dtype_bytes * shape.hidden_size + layer + ends
    return shape.num_layers * layer + ends


def adapter_parameters(shape: ModelShape, *, rank: int, targets: Sequence[str]) -> int:
    """Count the parameters of LoRA on these linear maps of every layer: rank x (inputs + outputs) each."""
    return shape.num_layers * sum(rank * sum(shape.linears[name]) for name in targets)


def weight_parts(work: Workload) -> list[MemoryPart]:
    size, dtype_bytes = work.shape.num_parameters, work.dtype_bytes
    teachers = [part("teacher", dtype_bytes * each.num_parameters, "b P of it", "always") for each in work.teachers]
    if work.four_bits:
        return [*_four_bit_weights(work), *teachers]
    parts = [part("weights", dtype_bytes * (size + work.adapters), "b P", "always")]
    if work.reference and work.trained is None:
        parts.append(part("reference model", dtype_bytes * size, "b P", "always"))
    return [*parts, *teachers]


def _four_bit_weights(work: Workload) -> list[MemoryPart]:
    """List the parts of linear layers whose weights have 4 bits each, a scale of 8 bits per 64, and a float32 per
    256 scales.

    A layer's weights are computed wherever it is used, first in float32.
    """
    linears = [inputs * outputs for inputs, outputs in work.shape.linears.values()]
    others = work.shape.num_parameters - work.shape.num_layers * sum(linears) + work.adapters
    stored = work.shape.num_layers * sum(map(stored_bytes, linears)) + TABLE_BYTES
    computed = (4 + work.dtype_bytes) * max(linears)
    return [
        part("weights of 4 bits", stored, f"Z (1/2 + 1/{BLOCK} + 4/{BLOCK * SCALE_BLOCK})", "always"),
        part("other weights and adapters", work.dtype_bytes * others, "b (P - Z)", "always"),
        part("one layer's weights", computed, "(4 + b) (largest linear)", "rollout"),
        part("one layer's weights", computed * work.parallel_microbatches, "(4 + b) (largest linear)", "update"),
    ]


def _critic(work: Workload) -> list[MemoryPart]:
    if work.critic is None:
        return []
    trained = work.num_critic_trained
    weights = part("critic's weights", work.dtype_bytes * trained, "b C", "always")
    return [weights, *_trained(work, trained, letter="C", owner="critic's ")]


def _trained(work: Workload, trained: int, *, letter: str, owner: str = "") -> list[MemoryPart]:
    """List the memory for the optimizer and the gradients of `trained` parameters. letter: theirs in the formulas."""
    dtype_bytes, offloaded = work.dtype_bytes, work.optimizer == "adamw_offload"
    held: Phase = "host" if offloaded else "always"
    parts: list[MemoryPart] = []
    if dtype_bytes != 4 or offloaded:
        parts.append(part(f"{owner}float32 masters", 4 * trained, f"4 {letter}", held))
    if work.optimizer == "adamw_8bit":
        moments = 2 * trained + 2 * 4 * -(-trained // _BLOCK_8BIT)
        formula = f"2 {letter} + 8 {letter} / {_BLOCK_8BIT}"
        parts.append(part(f"{owner}Adam moments, 8 bit", moments, formula, held))
    else:
        parts.append(part(f"{owner}Adam moments", 8 * trained, f"8 {letter}", held))
    summed: Phase = "host" if offloaded else "update"
    in_parallel = dtype_bytes * trained * work.parallel_microbatches
    return [
        *parts,
        part(f"{owner}gradient sums", 4 * trained, f"4 {letter}", summed),
        part(f"{owner}microbatch gradients", in_parallel, f"b {letter}", "update"),
    ]


def rollout_parts(work: Workload) -> list[MemoryPart]:
    shape, dtype_bytes = work.shape, work.dtype_bytes
    token_bytes = 2 * shape.num_layers * shape.kv_size * dtype_bytes
    prefill_tokens = round_up(work.prefilled, 16) * round_up(work.max_prompt_tokens, 16)
    if work.shared_prompts:
        cached = round_up(work.rollouts, 32) * round_up(work.max_response_tokens, 32)
        cached += work.prefilled * round_up(work.max_prompt_tokens, 16)
        formula = "(S response + prompts) 2 L K b"
    else:
        cached = round_up(work.rollouts, 32) * round_up(work.max_prompt_tokens + work.max_response_tokens, 32)
        formula = "S (prompt + response) 2 L K b"
    # `native.equal_rows` packs what is multiplied on a CPU once more: linear layers and the head.
    own_embedding = 0 if shape.tied else shape.vocab_size * shape.hidden_size
    layers = 0 if work.four_bits else shape.num_parameters - own_embedding - shape.vocab_size * shape.hidden_size
    packed = 0 if work.on_gpu else dtype_bytes * (layers + shape.vocab_size * shape.hidden_size)
    packed_part = part("packed weights", packed, "b P, without the embedding", "rollout")
    working = dtype_bytes * (3 * shape.intermediate_size + 4 * shape.hidden_size + 2 * shape.query_size)
    return [
        *([packed_part] if packed else []),
        part("key/value cache", cached * token_bytes, formula, "rollout"),
        part("prefill", prefill_tokens * (token_bytes + working), "prompts (2 L K + 3 I + 4 H + 2 Q) b", "rollout"),
        part(
            "logits to sample from",
            _SAMPLING_COPIES * _chunk(work, work.rollouts),
            _chunk_formula(work, _SAMPLING_COPIES),
            "rollout",
        ),
    ]


def update_parts(work: Workload) -> list[MemoryPart]:
    """List the parts of an update.

    The activations of the policy or of the critic count, whichever has more: one is updated after the other.
    """
    shape, dtype_bytes, tokens = work.shape, work.dtype_bytes, work.microbatch_tokens * work.parallel_microbatches
    shapes = [shape] if work.critic is None else [shape, work.critic]
    formula = "T b (L H + one layer)" if work.checkpointing else "T L b (4 I + 4 H + 3 Q + 2 K)"
    token_bytes = max(activation_bytes(each, dtype_bytes, checkpointing=work.checkpointing) for each in shapes)
    backward = dtype_bytes * max(3 * each.intermediate_size + 2 * each.hidden_size for each in shapes)
    widest = max(each.hidden_size for each in shapes)
    head = shape.vocab_size * shape.hidden_size * (4 + dtype_bytes)
    return [
        part("microbatch activations", tokens * token_bytes, formula, "update"),
        part("one layer's backward pass", tokens * backward, "T b (3 I + 2 H)", "update"),
        part("hidden states of the targets", 2 * work.targets * widest * dtype_bytes, "2 T b H", "update"),
        part(
            "a chunk of logits",
            _LOGIT_COPIES * _chunk(work, work.targets) * work.parallel_microbatches,
            _chunk_formula(work, _LOGIT_COPIES),
            "update",
        ),
        *_kept_logits(work),
        part("output embedding's sums", head * work.parallel_microbatches, "V H (4 + b)", "update"),
    ]


def _chunk(work: Workload, rows: int) -> int:
    """Return the bytes of the float32 logits that exist at once, out of `rows` rows."""
    vocab_size = work.shape.vocab_size
    return min(rows, rows_per_chunk(vocab_size, on_gpu=work.on_gpu)) * vocab_size * 4


def _kept_logits(work: Workload) -> list[MemoryPart]:
    rows = kept_rows(vocab_size := work.shape.vocab_size, on_gpu=work.on_gpu)
    kept = min(work.targets, rows) * vocab_size * 4 * work.parallel_microbatches
    return [part("kept logits", kept, f"at most {rows} rows of 4 V", "update")] if rows else []


def _chunk_formula(work: Workload, copies: int) -> str:
    return f"at most {rows_per_chunk(work.shape.vocab_size, on_gpu=work.on_gpu)} rows of 4 V, {copies} copies"


def part(name: str, size: int, formula: str, phase: Phase) -> MemoryPart:
    return MemoryPart(name=name, bytes=size, formula=formula, phase=phase)
