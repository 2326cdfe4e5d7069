"""The arithmetic class of a process: everything besides program, data and seed that decides the bits of a result.

Two processes of one class compute equal bits. Their labels can be equal and the bits still differ, for example on two
processors for which a library has different kernels. The probe, a digest of the results of a few operations, shows it.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ansatz.errors import ConfigError
from ansatz.links import read_text
from ansatz.models.determinism import same_bits
from ansatz.models.load import compute_dtype

VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")
"""Environment variables with which torch and its libraries are kept from using instructions of the processor."""


def arithmetic_class(device: torch.device, dtype: str) -> dict[str, Any]:
    """Return the class of this process. dtype: the value of `model.dtype`. ConfigError if it is `portable`, and torch
    was loaded without the variables of `repeat.portable`.

    device, dtype: where the model computes, and in which type. processor or card: its name. instructions: the set that
    torch's own kernels use, on a CPU only, and so are threads and the variables that are set. probe: see `probe`.

    Example: `{"device": "cpu", "dtype": "float32", "processor": "AMD EPYC", "instructions": "AVX2", "threads": 1,
    "variables": {}, "probe": "5b0b3f6a9c1d2e4f"}`.
    """
    computed_in = compute_dtype(dtype, device)
    found: dict[str, Any] = {"device": device.type, "dtype": str(computed_in).removeprefix("torch.")}
    if device.type == "cuda":
        found["card"] = torch.cuda.get_device_name(device)
    else:
        found |= {
            "processor": processor_name(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        }
    if dtype == "portable" and (found.get("instructions") != "AVX2" or "MKL_CBWR" not in found["variables"]):
        raise ConfigError(
            "model.dtype = portable: torch was loaded with all instructions of the device. It is for CPUs with AVX2. "
            "As `ansatz train` does, set ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2,STRICT before "
            "Python starts."
        )
    return {**found, "probe": probe(device, computed_in)}


@torch.no_grad()
def probe(device: torch.device, dtype: torch.dtype) -> str:
    """Return 16 digits of the SHA-256 of the results of products, sums and functions of fixed numbers."""
    digest = hashlib.sha256()
    with same_bits(device):
        for result in _results(device, dtype):
            digest.update(result.float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _results(device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    def numbers(*shape: int) -> Tensor:  # quotients, which every processor rounds alike
        whole = torch.arange(math.prod(shape), device=device) * 7919 % 1013 - 506
        return whole.float().div_(1013).view(shape).to(dtype)

    wide, heads = numbers(96, 400), numbers(2, 3, 40, 32)
    products = [numbers(rows, terms) @ numbers(terms, 80) for rows in (1, 8, 96) for terms in (32, 128, 1000)]
    functions = [torch.exp(wide), functional.silu(wide), torch.log_softmax(wide.float(), -1), wide.square().mean(-1)]
    return [*products, *functions, functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)]


def processor_name() -> str:
    """Return the name of this machine's processor."""
    cpus = Path("/proc/cpuinfo")
    lines = read_text(cpus).splitlines() if cpus.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
