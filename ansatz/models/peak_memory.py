"""Measured peak memory, to compare with the estimate of `models.memory`."""

from __future__ import annotations

import resource
import sys

import torch

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class PeakMemory:
    """Peak memory since this object was created.

    On a GPU: the most bytes that tensors held. On a CPU: the increase of the process's peak resident memory, which is 0
    if an earlier part of the process needed more.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self._start = 0 if device.type == "cuda" else _resident_peak()

    def gb(self) -> float:
        """Return the peak in GB (10^9 bytes), measured since the start."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e9
        return (_resident_peak() - self._start) / 1e9


def _resident_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
