"""The processes of an engine, ended whole, with the shared memory that killed ones would leave behind."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SEGMENTS = "/dev/shm/psm_"  # what Python's shared_memory names its files; vLLM's queues are such


def descendants(pid: int | None = None) -> set[Any]:
    """Children of a process (None: of this one) and theirs, as psutil has them: an id used again is no match.

    Without Python's resource trackers, which end by themselves; one may be this process's own.
    """
    psutil = importlib.import_module("psutil")  # vLLM brings it
    found: set[Any] = set()
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if "resource_tracker" not in " ".join(one.cmdline()):
                    found.add(one)
    return found


def all_alive(processes: Iterable[Any]) -> bool:
    psutil = importlib.import_module("psutil")
    try:
        return all(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)
    except psutil.NoSuchProcess:
        return False


def shared_memory(processes: Iterable[Any]) -> set[Path]:
    """Files of shared memory that these hold; on Linux alone. To be asked while they live."""
    found: set[Path] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
            found |= {Path(line.split()[-1]) for line in lines if f" {_SEGMENTS}" in line and "(deleted)" not in line}
    return found


def end(processes: Iterable[Any], segments: Iterable[Path]) -> None:
    """Kills the processes and removes the files; what is gone already is no error."""
    psutil = importlib.import_module("psutil")
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    for path in segments:
        path.unlink(missing_ok=True)
