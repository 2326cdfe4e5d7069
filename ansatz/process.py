"""Settings that the command gives its own process before torch is loaded."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)


def configure_process() -> None:
    """Let idle threads sleep after a few microseconds, and let the process keep the memory that it frees.

    By default, idle threads of torch's pool spin for milliseconds. If another process wants the core, this makes a run
    about thirty times slower. If the threads slept at once, every short operation on several threads would pay for
    waking them.

    By default, the C library returns every large block to the system and requests it again, page by page, for each
    temporary of a step. This took a tenth of a step's time.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # a few microseconds
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, 2**30)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
