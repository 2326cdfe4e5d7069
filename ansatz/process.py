"""What the command asks of its own process, before torch is loaded."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)


def settle() -> None:
    """Threads that wait sleep, and memory that is freed stays with the process.

    Waiting threads of torch's pool spin by default: no faster on an idle machine, and some thirty times slower where
    another process wants a core. By default the C library gives every large block back to the system and gets it anew,
    page by page, for each temporary of a step; that took a tenth of a step's time.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, 2**30)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
