"""Portable arithmetic (`model.dtype: portable`): float32 with instructions that x86-64 processors since 2015 have.

torch, oneDNN and MKL choose their functions by the processor when they are loaded, and these differ in the order of
their sums. Variables of the environment restrict all three to AVX2. `models.compiled` compiles our own kernels for the
same instructions.
"""

from __future__ import annotations

import os
import platform
import sys

from ansatz.errors import ConfigError

VARIABLES = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2,STRICT"}


def restrict_instructions(dtype: str) -> None:
    """Restrict this command to AVX2 if `model.dtype` asks for it. If torch is loaded already, start the command anew.

    Raise ConfigError on other kinds of processors.
    """
    if dtype != "portable":
        return
    if (machine := platform.machine()) != "x86_64":
        raise ConfigError(f"model.dtype = portable: it is for x86-64 processors, and this is {machine}. Take float32.")
    if VARIABLES.items() <= os.environ.items():
        return
    os.environ |= VARIABLES
    if "torch" in sys.modules:
        sys.stdout.flush()
        os.execv(sys.executable, sys.orig_argv)
