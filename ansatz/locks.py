"""One process for one folder: a second process that wants to write there is refused and told which one holds it.

The lock is an flock on the file `.lock`. The kernel releases it when the process ends, however it ends, so a killed run
leaves nothing to clean up.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ansatz.errors import ConfigError

LOCK_FILE = ".lock"


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the folder until the block ends; it is made if it is missing. ConfigError if another process holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Without O_NONBLOCK, a FIFO with that name could be waited for without end.
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise ConfigError(
            f"{folder / LOCK_FILE} cannot be opened ({error.strerror}), so the folder cannot be held against other "
            "processes. Use a folder that you can write to, and remove whatever has that name."
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise ConfigError(
                f"{folder} is in use by the process with pid {pid}. Wait until it ends, stop it, or use another folder."
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
