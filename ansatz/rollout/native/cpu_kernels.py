"""The kernels of a decode step on a CPU: `cpu_kernels.cpp`, compiled when it is first needed.

They take the arguments of those in `kernels` and `gumbel_kernels`, which say what they compute, and use torch's own
threads. The compiled file is kept in the user's cache folder, under a name that depends on source, compiler and
processor.

Axes: B rows, H hidden, Q query heads, K key/value heads, D head size, I intermediate.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SOURCE = Path(__file__).with_suffix(".cpp")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
_TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_LIMIT_S = 300


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


def add_and_normalise(hidden_BH: Tensor, delta_BH: Tensor | None, weight_H: Tensor, epsilon: float) -> Tensor:
    """Add delta to hidden in place, and return the RMS norm of the sum."""
    out_BH = torch.empty_like(hidden_BH)
    _call("add_and_normalise", hidden_BH, hidden_BH, delta_BH, weight_H, out_BH, epsilon, *hidden_BH.shape)
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
    _call("rotate_and_write", query_BQD, *tensors, epsilon, absolute_B, place_B, *cache, *sizes)


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
    _call("attend", query_BQD, query_BQD, *cache, *prompts, place_B, prompt_B, shared_B, out_BQD, scale, *sizes)
    return out_BQD


def find_winners(logits_BV: Tensor, seed_B22: Tensor) -> tuple[Tensor, Tensor]:
    """Return the token with the largest logit + noise and log(sum(exp(logits))), each [B, 1]."""
    logits_BV, seed_B22 = logits_BV.contiguous(), seed_B22.contiguous()
    winner_B1 = seed_B22.new_empty(len(logits_BV), 1, dtype=torch.int64)
    log_total_B1 = logits_BV.new_empty(len(logits_BV), 1)
    _call("find_winners", logits_BV, logits_BV, seed_B22, winner_B1, log_total_B1, *logits_BV.shape)
    return winner_B1, log_total_B1
