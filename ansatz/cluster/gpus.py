"""The memory of a machine's GPUs, as its driver reports it. No torch: asking it would take memory of a GPU."""

from __future__ import annotations

import subprocess

_QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
_TIMEOUT_S = 10.0


def gpu_bytes() -> list[int]:
    """Return the memory of each NVIDIA GPU of this machine. Empty if there is none, or if it is not known."""
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [int(line) * 2**20 for line in done.stdout.split() if line.isdecimal()]
