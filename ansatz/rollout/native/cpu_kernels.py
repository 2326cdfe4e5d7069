"""The kernels of a decode step on a CPU: `cpu_kernels.cpp`, compiled when it is first needed.

They use torch's own threads. The compiled file is kept in the user's cache folder, under a name that depends on source,
compiler and processor.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import os
import platform
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SOURCE = Path(__file__).with_suffix(".cpp")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
_TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_LIMIT_S = 300
_IN_TORCH = ("create_tensor_from_blob", "delete_tensor_object", "cpu_mm_out", "cpu_addmm_out")


@functools.cache
def library() -> ctypes.CDLL | None:
    """Load the compiled kernels; None if this machine has no compiler that makes them."""
    compiler = shutil.which(os.environ.get("CXX") or "c++")
    if compiler is None or os.name != "posix":
        return None
    try:
        made = _cache_folder() / f"decode-{_digest(compiler)}.so"
        if not made.is_file():
            _compile(compiler, made)
        return ctypes.CDLL(str(made))
    except (OSError, RuntimeError, subprocess.SubprocessError):  # RuntimeError: the user has no home folder
        return None


def _cache_folder() -> Path:
    """Return a folder that only its owner can write to, because what lies in it is executed."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ansatz" / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(f"{folder} can be written by others")
    return folder


def _digest(compiler: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=_LIMIT_S).stdout
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.is_file() else [platform.processor()]
    kind = "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    parts = (SOURCE.read_bytes(), " ".join(FLAGS).encode(), version, kind.encode(), platform.machine().encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _compile(compiler: str, made: Path) -> None:
    """Compile into a draft next to the file. Without OpenMP at the end, its calls find the library that torch uses."""
    with tempfile.TemporaryDirectory(dir=made.parent) as draft:
        unlinked, linked = f"{draft}/kernels.o", f"{draft}/kernels.so"
        for arguments in ([*FLAGS, "-c", str(SOURCE), "-o", unlinked], ["-shared", unlinked, "-o", linked]):
            subprocess.run([compiler, *arguments], capture_output=True, check=True, timeout=_LIMIT_S)
        os.replace(linked, made)


@functools.cache
def _function(name: str, kinds: tuple[type, ...]) -> Any:
    """Return a kernel that takes arguments of these kinds, and the number of threads."""
    function = getattr(library(), name)
    known = {float: ctypes.c_double, int: ctypes.c_int64}
    function.argtypes = [*(known.get(kind, ctypes.c_void_p) for kind in kinds), ctypes.c_int]
    return function


def _call(name: str, like: Tensor, *arguments: Tensor | float | None) -> None:
    """Call a kernel for the type of `like`."""
    values = [each.data_ptr() if isinstance(each, Tensor) else each for each in arguments]
    kinds = tuple(map(type, arguments))
    _function(f"{name}_{_TYPES[like.dtype]}", kinds)(*values, torch.get_num_threads())


@functools.cache
def find_products(dtype: torch.dtype) -> ctypes.Array[ctypes.c_int64] | None:
    """Return the struct `Torch` of the kernels, with torch's own products of matrices; None if this torch has none."""
    for path in Path(torch.__file__).parent.glob("lib/libtorch_cpu.*"):
        found = ctypes.CDLL(str(path))
        with contextlib.suppress(AttributeError):
            functions = [getattr(found, f"aoti_torch_{name}") for name in _IN_TORCH]
            places = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
            codes = getattr(found, f"aoti_torch_dtype_{_TYPES[dtype]}")(), found.aoti_torch_device_type_cpu()
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
    """Compute a whole decode step. layers, tensors and sizes have the order of the structs `Layer` and `Step`.

    share: rows that a thread takes through all layers on its own; as many as there are: all threads share each
        operation.
    """
    dtype = tensors[0].dtype
    places = [0 if each is None else each.data_ptr() for each in itertools.chain(*layers)]
    table, torch_table = (ctypes.c_int64 * len(places))(*places), find_products(dtype)
    assert torch_table is not None
    heads = ctypes.addressof(torch_table), ctypes.addressof(table), *(each.data_ptr() for each in tensors)
    packed = struct.pack(f"{len(heads)}q3d{len(sizes)}q", *heads, *epsilons, scale, *sizes)
    function = getattr(library(), f"decode_{_TYPES[dtype]}")
    if function(packed, ctypes.c_int64(share), ctypes.c_int(torch.get_num_threads())):
        raise RuntimeError("torch did not multiply the matrices of a decode step")


def find_winners(logits_BV: Tensor, seed_B22: Tensor) -> tuple[Tensor, Tensor]:
    """Return the token with the largest logit + noise and log(sum(exp(logits))), each [B, 1]."""
    logits_BV, seed_B22 = logits_BV.contiguous(), seed_B22.contiguous()
    winner_B1 = seed_B22.new_empty(len(logits_BV), 1, dtype=torch.int64)
    log_total_B1 = logits_BV.new_empty(len(logits_BV), 1)
    _call("find_winners", logits_BV, logits_BV, seed_B22, winner_B1, log_total_B1, *logits_BV.shape)
    return winner_B1, log_total_B1
