"""Kernels in C++ for a CPU, compiled when they are first needed.

They use torch's own threads. A compiled file is kept in the user's cache folder, under a name that depends on source,
compiler and processor.
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
import threading
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_HEADERS = Path(__file__).parent
_FLAGS = ("-std=c++17", "-O3", "-fopenmp", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
_MACHINES = {"default": "x86-64", "avx2": "x86-64-v3"}  # by ATEN_CPU_CAPABILITY, which restricts torch too
_LIMIT_S = 300
_LOCK = threading.Lock()


def load_kernels(source: Path, *flags: str) -> ctypes.CDLL | None:
    """Load the compiled kernels of a file; None if this machine has no compiler that makes them."""
    compiler = shutil.which(os.environ.get("CXX") or "c++")
    if compiler is None or os.name != "posix":
        return None
    machine = _MACHINES.get(os.environ.get("ATEN_CPU_CAPABILITY", ""), "native")
    flags = (*_FLAGS, f"-march={machine}", f"-I{_HEADERS}", *flags)
    try:
        folder = _cache_folder()
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return None
    with _LOCK:  # microbatches run in threads: one of them compiles, and no other tries it again
        return _load(compiler, source, flags, folder)


@functools.cache
def _load(compiler: str, source: Path, flags: tuple[str, ...], folder: Path) -> ctypes.CDLL | None:
    try:
        made = folder / f"{source.stem}-{_digest(compiler, source, flags)}.so"
        if not made.is_file():
            _compile(compiler, source, flags, made)
        return ctypes.CDLL(str(made))
    except (OSError, subprocess.SubprocessError):
        return None


def call(library: ctypes.CDLL | None, name: str, like: Tensor, *arguments: Tensor | float | None) -> None:
    """Call a kernel for the type of `like`, with the threads of torch."""
    values = [each.data_ptr() if isinstance(each, Tensor) else each for each in arguments]
    _function(library, f"{name}_{TYPES[like.dtype]}", tuple(map(type, arguments)))(*values, torch.get_num_threads())


@functools.cache
def _function(library: ctypes.CDLL | None, name: str, kinds: tuple[type, ...]) -> Any:
    """Return a kernel that takes arguments of these kinds, and the number of threads."""
    function = getattr(library, name)
    known = {float: ctypes.c_double, int: ctypes.c_int64}
    function.argtypes = [*(known.get(kind, ctypes.c_void_p) for kind in kinds), ctypes.c_int]
    return function


def _cache_folder() -> Path:
    """Return a folder that only its owner can write to, because the files in it are executed."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ansatz" / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(f"{folder} can be written by others")
    return folder


def _digest(compiler: str, source: Path, flags: tuple[str, ...]) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=_LIMIT_S).stdout
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.is_file() else [platform.processor()]
    kind = "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    files = (source, *sorted({*_HEADERS.glob("*.h"), *source.parent.glob("*.h")}))
    parts = (*(file.read_bytes() for file in files), " ".join(flags).encode(), version, kind.encode())
    return hashlib.sha256(b"\0".join((*parts, platform.machine().encode()))).hexdigest()[:16]


def _compile(compiler: str, source: Path, flags: tuple[str, ...], made: Path) -> None:
    """Compile into a draft next to the file. Without OpenMP at the end, its calls find the library that torch uses."""
    with tempfile.TemporaryDirectory(dir=made.parent) as draft:
        unlinked, linked = f"{draft}/kernels.o", f"{draft}/kernels.so"
        for arguments in ([*flags, "-c", str(source), "-o", unlinked], ["-shared", unlinked, "-o", linked]):
            subprocess.run([compiler, *arguments], capture_output=True, check=True, timeout=_LIMIT_S)
        os.replace(linked, made)
