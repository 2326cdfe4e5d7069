"""The kernels of a decode step on a CPU, one by one: with the arguments of those in `ansatz.rollout.native.kernels`.

The package calls a whole step instead.

Axes: B rows, H hidden, Q query heads, K key/value heads, D head size, I intermediate.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ansatz.models.compiled import call
from ansatz.rollout.native import cpu_kernels


def _call(name: str, like: Tensor, *arguments: Tensor | float | None) -> None:
    call(cpu_kernels.library(), name, like, *arguments)


def find_winners(logits_BV: Tensor, seed_B22: Tensor) -> tuple[Tensor, Tensor]:
    return cpu_kernels.find_winners(logits_BV, seed_B22)


def add_and_normalise(hidden_BH: Tensor, delta_BH: Tensor | None, weight_H: Tensor, epsilon: float) -> Tensor:
    """Add delta to hidden in place, and return the RMS norm of the sum."""
    out_BH = torch.empty_like(hidden_BH)
    call(
        cpu_kernels.library(),
        "add_and_normalise",
        hidden_BH,
        hidden_BH,
        delta_BH,
        weight_H,
        out_BH,
        epsilon,
        *hidden_BH.shape,
    )
    return out_BH


def gate(gate_BI: Tensor, up_BI: Tensor) -> Tensor:
    """Compute silu(gate) * up, in the memory of gate."""
    _call("gate", gate_BI, gate_BI, up_BI, *gate_BI.shape)
    return gate_BI


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
    """Rotate the queries in place, and write the rotated keys and the values into the cache."""
    rows, heads, head = key_BKD.shape
    sizes = rows, heads, query_BQD.shape[1] // heads, head, cache[0].shape[2]
    tensors = query_BQD, key_BKD, value_BKD, *rotation, *(norms or (None, None))
    _call("rotate_and_write", query_BQD, *tensors, epsilon, absolute_B, torch.arange(rows), place_B, *cache, *sizes)


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
    """Attend [B, Q, D] with one query per row over its shared prompt, if it has one, and its own positions."""
    rows, query_heads, head = query_BQD.shape
    heads, span = cache[0].shape[1:3]
    out_BQD, prompts = torch.empty_like(query_BQD), prompts or cache
    sizes = rows, heads, query_heads // heads, head, span, prompts[0].shape[2]
    call(
        cpu_kernels.library(),
        "attend",
        query_BQD,
        query_BQD,
        *cache,
        *prompts,
        torch.arange(rows),
        place_B,
        prompt_B,
        shared_B,
        out_BQD,
        scale,
        *sizes,
    )
    return out_BQD
