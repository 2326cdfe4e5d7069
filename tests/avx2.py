"""Kernels in C++ as they are compiled on a processor without AVX-512."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest


def load_for_avx2(load: Callable[[], ctypes.CDLL | None], folder: Path) -> ctypes.CDLL:
    """Compile and load kernels with a compiler that is told to leave out later instructions."""
    compiler = folder / "c++"
    compiler.write_text('#!/bin/sh\nexec c++ "$@" -march=haswell\n', encoding="utf-8")  # the last one counts
    compiler.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", str(compiler))
        patch.setenv("XDG_CACHE_HOME", str(folder))
        library = load()
    assert library is not None
    return library
