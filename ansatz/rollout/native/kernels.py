"""Triton kernels of a decode step on an NVIDIA GPU: the operations between its matrix products.

Axes: B rows, H hidden, Q query heads, K key/value heads, G = Q/K, D head size, P cached positions, R prompts, C columns
of a prompt, I intermediate. The rows of queries, keys, values, gate and up may lie apart, all else is contiguous. Sums
are float32; each result is rounded to the model's type where the plain operations would round it, except inside
attention, which stays in float32.

This module needs the package triton, which comes with torch for CUDA.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 64  # positions that a program reads at once
_PROGRAMS = 512  # that fill a large GPU
_MAX_SPLITS = 32


@triton.jit
def _add_and_normalise(hidden, delta, weight, out, epsilon, size, ADDS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    at = row * size + column
    value = tl.load(hidden + at, mask=inside, other=0.0)
    if ADDS:
        value = (value.to(tl.float32) + tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)).to(value.dtype)
        tl.store(hidden + at, value, mask=inside)
    wide = value.to(tl.float32)
    inverse = tl.rsqrt(tl.sum(wide * wide, 0) / size + epsilon)
    normal = (wide * inverse).to(value.dtype).to(tl.float32)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (normal * scale).to(value.dtype), mask=inside)


def add_and_normalise(hidden_BH: Tensor, delta_BH: Tensor | None, weight_H: Tensor, epsilon: float) -> Tensor:
    """Add delta to hidden in place, and return the RMS norm of the sum."""
    rows, size = hidden_BH.shape
    out_BH = torch.empty_like(hidden_BH)
    delta, block = (hidden_BH if delta_BH is None else delta_BH), triton.next_power_of_2(size)
    _add_and_normalise[(rows,)](
        hidden_BH, delta, weight_H, out_BH, epsilon, size, ADDS=delta_BH is not None, BLOCK=block, num_warps=8
    )
    return out_BH


@triton.jit
def _gate(gate, up, size, stride, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at, inside = row * stride + column, column < size
    value = tl.load(gate + at, mask=inside, other=0.0)
    wide = value.to(tl.float32)
    activated = (wide / (1.0 + tl.exp(-wide))).to(value.dtype).to(tl.float32)
    product = activated * tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(gate + at, product.to(value.dtype), mask=inside)


def gate(gate_BI: Tensor, up_BI: Tensor) -> Tensor:
    """Compute silu(gate) * up, in the memory of gate."""
    rows, size = gate_BI.shape
    _gate[(rows, triton.cdiv(size, 1024))](gate_BI, up_BI, size, gate_BI.stride(0), BLOCK=1024)
    return gate_BI


@triton.jit
def _rotate_and_write(
    query, key, value, cosine, sine, query_norm, key_norm, absolute, place, cached_key, cached_value,
    epsilon, span, query_stride, key_stride,
    QUERY_HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr, NORMS: tl.constexpr,
):  # fmt: skip
    row, number = tl.program_id(0).to(tl.int64), tl.program_id(1)
    half: tl.constexpr = HEAD // 2
    column = tl.arange(0, BLOCK)
    inside = column < half
    if number < QUERY_HEADS:
        source = query + row * query_stride + number * HEAD
        target = source
        norm = query_norm
    else:
        head = (number - QUERY_HEADS) % KEY_HEADS
        cell = ((row * KEY_HEADS + head) * span + tl.load(place + row)) * HEAD
        norm = key_norm
        if number < QUERY_HEADS + KEY_HEADS:
            source = key + row * key_stride + head * HEAD
            target = cached_key + cell
        else:
            source = value + row * key_stride + head * HEAD
            target = cached_value + cell
    low = tl.load(source + column, mask=inside, other=0.0)
    high = tl.load(source + half + column, mask=inside, other=0.0)
    if number < QUERY_HEADS + KEY_HEADS:
        kind = low.dtype
        if NORMS:
            square = low.to(tl.float32) * low.to(tl.float32) + high.to(tl.float32) * high.to(tl.float32)
            inverse = tl.rsqrt(tl.sum(square, 0) / HEAD + epsilon)
            low_scale = tl.load(norm + column, mask=inside, other=0.0).to(tl.float32)
            high_scale = tl.load(norm + half + column, mask=inside, other=0.0).to(tl.float32)
            low = ((low.to(tl.float32) * inverse).to(kind).to(tl.float32) * low_scale).to(kind)
            high = ((high.to(tl.float32) * inverse).to(kind).to(tl.float32) * high_scale).to(kind)
        angle = tl.load(absolute + row) * HEAD + column
        low_cosine = tl.load(cosine + angle, mask=inside, other=0.0).to(tl.float32)
        low_sine = tl.load(sine + angle, mask=inside, other=0.0).to(tl.float32)
        high_cosine = tl.load(cosine + half + angle, mask=inside, other=0.0).to(tl.float32)
        high_sine = tl.load(sine + half + angle, mask=inside, other=0.0).to(tl.float32)
        old_low, old_high = low.to(tl.float32), high.to(tl.float32)
        low = (old_low * low_cosine).to(kind).to(tl.float32) + (old_high * low_sine).to(kind).to(tl.float32)
        high = (old_high * high_cosine).to(kind).to(tl.float32) + (old_low * high_sine).to(kind).to(tl.float32)
        low, high = low.to(kind), high.to(kind)
    tl.store(target + column, low, mask=inside)
    tl.store(target + half + column, high, mask=inside)


def rotate_and_write(
    query_BQD: Tensor,
    key_BKD: Tensor,
    value_BKD: Tensor,
    rotation: tuple[Tensor, Tensor],
    norms: tuple[Tensor, Tensor] | None,
    epsilon: float,
    absolute_B: Tensor,
    place_B: Tensor,
    cache: tuple[Tensor, Tensor],
) -> None:
    """Rotate the queries in place, and write the rotated keys and the values into the cache.

    rotation: cosine and sine [positions, D], the first half of the sine negated. norms: the weights of RMS norms of
    queries and keys. absolute_B: the position of each row's token in its text. place_B: where its slot stores it.
    cache: keys and values [slots, K, P, D].
    """
    rows, query_heads, head_dim = query_BQD.shape
    key_heads = key_BKD.shape[1]
    query_norm, key_norm = norms or (query_BQD, query_BQD)
    _rotate_and_write[(rows, query_heads + 2 * key_heads)](
        query_BQD, key_BKD, value_BKD, *rotation, query_norm, key_norm, absolute_B, place_B, *cache,
        epsilon, cache[0].shape[2], query_BQD.stride(0), key_BKD.stride(0),
        QUERY_HEADS=query_heads, KEY_HEADS=key_heads, HEAD=head_dim, BLOCK=triton.next_power_of_2(head_dim // 2),
        NORMS=norms is not None, num_warps=1,
    )  # fmt: skip


@triton.jit
def _add_range(
    query, key, value, start, stop, scale, largest, total, sums,
    HEAD: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Continue the running softmax of attention with the positions from start to stop."""
    column = tl.arange(0, BLOCK_D)
    for first in range(start, stop, BLOCK):
        position = first + tl.arange(0, BLOCK)
        seen = position < stop
        at = position[:, None].to(tl.int64) * HEAD + column[None, :]
        mask = seen[:, None] & (column < HEAD)[None, :]
        keys = tl.load(key + at, mask=mask, other=0.0)
        values = tl.load(value + at, mask=mask, other=0.0)
        score = tl.dot(query, tl.trans(keys), input_precision=PRECISION) * scale
        score = tl.where(seen[None, :], score, -float("inf"))
        higher = tl.maximum(largest, tl.max(score, 1))
        weight = tl.exp(score - higher[:, None])
        before = tl.exp(largest - higher)
        total = total * before + tl.sum(weight, 1)
        sums = sums * before[:, None] + tl.dot(weight.to(values.dtype), values, input_precision=PRECISION)
        largest = higher
    return largest, total, sums


@triton.jit
def _attend(
    query, key, value, prompt_key, prompt_value, place, prompt, shared, out, partial,
    scale, span, columns, query_stride,
    KEY_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK: tl.constexpr, SPLITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    member, column = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_D)
    inside = (member < GROUP)[:, None] & (column < HEAD)[None, :]
    query_head = (row * KEY_HEADS + head) * GROUP + member
    at = query_head[:, None] * HEAD + column[None, :]
    asked = (head * GROUP + member)[:, None] * HEAD + column[None, :]
    queries = tl.load(query + row * query_stride + asked, mask=inside, other=0.0)
    of = tl.load(prompt + row)  # below 0 in rows that only round the batch up, whose prompt can be gone
    num_shared = tl.where(of < 0, 0, tl.load(shared + row)).to(tl.int32)
    num_seen = num_shared + tl.load(place + row).to(tl.int32) + 1
    length = tl.cdiv(tl.cdiv(num_seen, SPLITS), BLOCK) * BLOCK
    start = split * length
    stop = tl.minimum(start + length, num_seen)

    largest = tl.full((BLOCK_G,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_G,), tl.float32)
    sums = tl.zeros((BLOCK_G, BLOCK_D), tl.float32)
    source = (tl.maximum(of, 0) * KEY_HEADS + head) * columns * HEAD
    largest, total, sums = _add_range(
        queries, prompt_key + source, prompt_value + source, start, tl.minimum(stop, num_shared), scale,
        largest, total, sums, HEAD, BLOCK_D, BLOCK, PRECISION,
    )  # fmt: skip
    source = (row * KEY_HEADS + head) * span * HEAD
    largest, total, sums = _add_range(
        queries, key + source, value + source, tl.maximum(start - num_shared, 0), stop - num_shared, scale,
        largest, total, sums, HEAD, BLOCK_D, BLOCK, PRECISION,
    )  # fmt: skip
    if SPLITS == 1:
        tl.store(out + at, (sums / total[:, None]).to(queries.dtype), mask=inside)
    else:
        cell = (query_head * SPLITS + split) * (HEAD + 2)
        tl.store(partial + cell[:, None] + column[None, :], sums, mask=inside)
        tl.store(partial + cell + HEAD, largest, mask=member < GROUP)
        tl.store(partial + cell + HEAD + 1, total, mask=member < GROUP)


@triton.jit
def _combine(partial, out, HEAD: tl.constexpr, BLOCK_D: tl.constexpr, SPLITS: tl.constexpr):
    query_head = tl.program_id(0).to(tl.int64)
    split, column = tl.arange(0, SPLITS), tl.arange(0, BLOCK_D)
    inside = column < HEAD
    cell = (query_head * SPLITS + split) * (HEAD + 2)
    largest = tl.load(partial + cell + HEAD)
    weight = tl.exp(largest - tl.max(largest, 0))
    total = tl.sum(weight * tl.load(partial + cell + HEAD + 1), 0)
    sums = tl.load(partial + cell[:, None] + column[None, :], mask=inside[None, :], other=0.0)
    result = tl.sum(sums * weight[:, None], 0) / total
    tl.store(out + query_head * HEAD + column, result.to(out.dtype.element_ty), mask=inside)


def attend(
    query_BQD: Tensor,
    cache: tuple[Tensor, Tensor],
    prompts: tuple[Tensor, Tensor] | None,
    *,
    place_B: Tensor,
    prompt_B: Tensor,
    shared_B: Tensor,
    scale: float,
) -> Tensor:
    """Attend [B, Q, D] with one query per row over its shared prompt, if there is one, and its own positions up to
    place_B.

    cache: keys and values [slots, K, P, D]. prompts: the same of shared prompts [R, K, C, D]. prompt_B: the prompt of
    each row. shared_B: number of its positions that the row sees, 0 for none. Positions beyond are neither read nor
    seen.
    """
    rows, query_heads, head_dim = query_BQD.shape
    key_heads = cache[0].shape[1]
    group = query_heads // key_heads
    prompt_key, prompt_value = prompts or cache
    splits = min(triton.next_power_of_2(triton.cdiv(_PROGRAMS, rows * key_heads)), _MAX_SPLITS)
    out_BQD = query_BQD.new_empty(query_BQD.shape)
    num_partial = rows * query_heads * splits * (head_dim + 2) if splits > 1 else 1
    partial = query_BQD.new_empty(num_partial, dtype=torch.float32)
    blocks = {"BLOCK_D": max(16, triton.next_power_of_2(head_dim)), "SPLITS": splits}
    _attend[(rows, key_heads, splits)](
        query_BQD, *cache, prompt_key, prompt_value, place_B, prompt_B, shared_B, out_BQD, partial,
        scale, cache[0].shape[2], prompt_key.shape[2], query_BQD.stride(0),
        KEY_HEADS=key_heads, GROUP=group, HEAD=head_dim, BLOCK_G=max(16, triton.next_power_of_2(group)),
        BLOCK=_BLOCK, PRECISION="ieee", **blocks,
    )  # fmt: skip
    if splits > 1:
        _combine[(rows * query_heads,)](partial, out_BQD, HEAD=head_dim, **blocks)
    return out_BQD
