"""How much memory was in use at most: the measurement beside the arithmetic of `models.memory`."""

from __future__ import annotations

import resource
import sys

import torch

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class PeakMemory:
    """Since it was made. On a GPU the bytes that tensors held at most; on a CPU by how much the process's peak of
    resident memory has risen, which is 0 while an earlier part of the process needed more."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self._start = 0 if device.type == "cuda" else _resident_peak()

    def gb(self) -> float:
        """In units of 10^9 bytes."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e9
        return (_resident_peak() - self._start) / 1e9


def _resident_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
