"""CPU threads of torch. Bit-identical repetition of a run needs the same number."""

from __future__ import annotations

import os

import torch


def set_threads(count: int) -> None:
    """Use `count` threads; 0: as many as the process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(count or usable or 1)
