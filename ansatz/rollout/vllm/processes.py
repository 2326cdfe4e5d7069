"""Ending an engine with all its processes, and with the shared memory that killed processes leave behind."""

from __future__ import annotations

import contextlib
import importlib
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SEGMENTS = "/dev/shm/psm_"  # how Python's shared_memory names its files, which vLLM uses for its queues


def free_port() -> int:
    """Return a port of this machine that nobody listens at now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def descendants(pid: int | None = None) -> set[Any]:
    """Return all descendants of a process (None: of this one), as psutil processes, which do not match a reused
    process id.

    Python's resource trackers are left out: they end by themselves, and one of them may belong to this process.
    """
    psutil = importlib.import_module("psutil")  # vLLM brings it
    processes: set[Any] = set()
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if "resource_tracker" not in " ".join(process.cmdline()):
                    processes.add(process)
    return processes


def all_alive(processes: Iterable[Any]) -> bool:
    psutil = importlib.import_module("psutil")
    try:
        return all(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    except psutil.NoSuchProcess:
        return False


def shared_memory(processes: Iterable[Any]) -> set[Path]:
    """Return the shared-memory files that these processes hold. Works only on Linux and while the processes live."""
    segments: set[Path] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
            segments |= {
                Path(line.split()[-1]) for line in lines if f" {_SEGMENTS}" in line and "(deleted)" not in line
            }
    return segments


def end(processes: Iterable[Any], segments: Iterable[Path]) -> None:
    """Kill the processes and remove the files. A process or file that is already gone is not an error."""
    psutil = importlib.import_module("psutil")
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    for path in segments:
        path.unlink(missing_ok=True)
