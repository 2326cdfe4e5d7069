"""A process that outlives its parent for a moment: it kills the processes that a local Ray leaves behind, and removes
its folder.

    python -m ansatz.cluster.reaper FOLDER PARENT

It waits until its standard input closes, which the kernel does when the parent ends, however it ends. Every process of
Ray has its logs open in the folder, and every process that a worker has started inherits them. On Linux the processes
are found by these files.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

_KILLS = 20


def processes_in(folder: str) -> list[int]:
    """Return the processes of this user that have a file of the folder open."""
    found = list[int]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid != os.geteuid():
                continue
            targets = [os.readlink(descriptor) for descriptor in (process / "fd").iterdir()]
        except OSError:  # it has ended, or belongs to somebody else
            continue
        if any(target.startswith(f"{folder}/") for target in targets):
            found.append(int(process.name))
    return found


def reap(folder: str, parent: int) -> None:
    """Kill all processes of the folder except the parent, and remove it."""
    for _ in range(_KILLS):
        processes = [pid for pid in processes_in(folder) if pid != parent]
        if not processes:
            break
        for pid in processes:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    reap(sys.argv[1], int(sys.argv[2]))
