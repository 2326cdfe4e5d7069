"""The kernels of a decode step on a CPU: `cpu_kernels.cpp`, compiled when it is first needed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import struct
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ansatz.models.compiled import TYPES, call, load_kernels
from ansatz.models.packing import round_up

SOURCE = Path(__file__).with_suffix(".cpp")
_PANEL = 32
"""Largest number of columns of a panel."""
_IN_TORCH = ("create_tensor_from_blob", "delete_tensor_object", "cpu_mm_out", "cpu_addmm_out")


@functools.cache
def library() -> ctypes.CDLL | None:
    """Load the compiled kernels; None if no compiler of this machine can make them."""
    return load_kernels(SOURCE)


@functools.cache
def find_products(dtype: torch.dtype) -> ctypes.Array[ctypes.c_int64] | None:
    """Return the struct `Torch` of the kernels, with torch's own products of matrices; None without these."""
    for path in Path(torch.__file__).parent.glob("lib/libtorch_cpu.*"):
        found = ctypes.CDLL(str(path))
        with contextlib.suppress(AttributeError):
            functions = [getattr(found, f"aoti_torch_{name}") for name in _IN_TORCH]
            places = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
            codes = getattr(found, f"aoti_torch_dtype_{TYPES[dtype]}")(), found.aoti_torch_device_type_cpu()
            return (ctypes.c_int64 * (len(places) + 2))(*places, *codes)
    return None


def decode(
    layers: Sequence[Sequence[Tensor | None]],
    tensors: Sequence[Tensor],
    epsilons: tuple[float, float],
    scale: float,
    sizes: Sequence[int],
    *,
    share: int,
) -> None:
    """Compute a whole decode step. layers, tensors and sizes are in the order of the structs `Layer` and `Step`.

    share: rows that a thread takes through all layers on its own; 0: all threads share each operation.
    """
    dtype = tensors[0].dtype
    places = [0 if each is None else each.data_ptr() for each in itertools.chain(*layers)]
    table, torch_table = (ctypes.c_int64 * len(places))(*places), find_products(dtype)
    heads = ctypes.addressof(torch_table) if torch_table else 0, ctypes.addressof(table)
    numbers = *heads, *(each.data_ptr() for each in tensors), *epsilons, scale, *sizes
    packed = struct.pack(f"{len(heads) + len(tensors)}q3d{len(sizes)}q", *numbers)
    function = getattr(library(), f"decode_{TYPES[dtype]}")
    if function(packed, ctypes.c_int64(share), ctypes.c_int(torch.get_num_threads())):
        raise RuntimeError("torch did not multiply the matrices of a decode step")


def pack(weight_NK: Tensor) -> Tensor:
    """Pack a weight for `multiply`. In bfloat16, the number of terms must be even."""
    (columns, terms), weight_NK = weight_NK.shape, weight_NK.detach().contiguous()
    panels = weight_NK.new_empty(round_up(columns, _PANEL) * terms)
    call(library(), "pack", weight_NK, weight_NK, panels, columns, terms)
    return panels


def multiply(input: Tensor, panels: Tensor, bias_N: Tensor | None, columns: int) -> Tensor:
    """Map an input [..., K] to [..., N] by a packed weight."""
    rows_MK = input.reshape(-1, input.shape[-1]).contiguous()
    out_MN = rows_MK.new_empty(len(rows_MK), columns)
    call(library(), "multiply", rows_MK, rows_MK, panels, bias_N, out_MN, *rows_MK.shape, columns)
    return out_MN.view(*input.shape[:-1], columns)


def find_winners(logits_BV: Tensor, seed_B22: Tensor) -> tuple[Tensor, Tensor]:
    """Return the token with the largest logit + noise and log(sum(exp(logits))), each [B, 1]."""
    logits_BV, seed_B22 = logits_BV.contiguous(), seed_B22.contiguous()
    winner_B1 = seed_B22.new_empty(len(logits_BV), 1, dtype=torch.int64)
    log_total_B1 = logits_BV.new_empty(len(logits_BV), 1)
    call(library(), "find_winners", logits_BV, logits_BV, seed_B22, winner_B1, log_total_B1, *logits_BV.shape)
    return winner_B1, log_total_B1
