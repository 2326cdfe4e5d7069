"""What the command asks of its own process, before torch is loaded."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)


def settle() -> None:
    """Threads that wait go to sleep soon, and memory that is freed stays with the process.

    Waiting threads of torch's pool spin for milliseconds by default, which is some thirty times slower where another
    process wants a core; where they sleep at once, each short operation on several threads costs a waking.
    The C library gives every large block back to the system by default and gets it anew, page by page, for each
    temporary of a step; that took a tenth of a step's time.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # some microseconds
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, 2**30)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
