"""One process for one folder: a second process that wants to write there is refused and told which one holds it.

The lock is an flock on the folder itself and one on the file `.lock` in it. The kernel releases both when the process
ends, however it ends, so a killed run leaves nothing to clean up. The file names the process, and holds the folder on
file systems that cannot lock folders, such as NFS; the lock of the folder stays when the file is removed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ansatz.errors import ConfigError
from ansatz.links import hold, make_folder, open_descriptor, open_file, open_folder

LOCK_FILE = ".lock"


class FolderLock:
    """A folder that this process holds; made by `folder_lock`. descriptors: of the folder, and of the file in it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / LOCK_FILE
        self._of_folder = open_folder(folder)
        self._of_file = -1
        try:
            try:
                self._lock(self._of_folder)
                self._lasting = True
            except OSError:  # of a file system that cannot lock folders
                self._lasting = False
            self._take_file()
        except BaseException:
            self.close()
            raise

    def check(self) -> str | None:
        """Raise ConfigError if the folder was moved or replaced, or if another process may have used it.

        If only the file was removed or replaced, it is made again. Returns a sentence about that.
        """
        if not _is(self._folder, self._of_folder):
            raise ConfigError(
                f"{self._folder} was moved, removed or replaced while this process was using it, so nothing more is "
                "written. Put the folder back before you resume, and do not move it while a run is on."
            )
        if _is(self._path, self._of_file):
            return None
        if not self._lasting and self._path.exists() and (pid := _read_pid(self._path)) != str(os.getpid()):
            raise ConfigError(
                f"{self._path} was replaced while this process was using {self._folder}, and names the process with "
                f"pid {pid}, which may have written there too, so nothing more is written. Stop that process, then "
                "resume from the last checkpoint."
            )
        sentence = f"{self._path} was removed or replaced while this process was using the folder."
        with suppress(OSError):
            os.close(self._of_file)
        try:
            self._take_file()
        except OSError as error:  # such as a full disk; the folder itself is still locked
            return f"{sentence} It could not be made again ({error.strerror})."
        return f"{sentence} It has been made again."

    def close(self) -> None:
        for descriptor in (self._of_file, self._of_folder):
            with suppress(OSError):
                os.close(descriptor)

    def _take_file(self) -> None:
        self._of_file = open_descriptor(self._path, os.O_RDWR | os.O_CREAT)
        self._lock(self._of_file)
        os.ftruncate(self._of_file, 0)
        os.pwrite(self._of_file, f"{os.getpid()}\n".encode(), 0)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"{self._folder} is in use by the process with pid {_read_pid(self._path)}. Wait until it ends, stop "
                "it, or use another folder."
            ) from error


@contextmanager
def folder_lock(folder: Path) -> Iterator[FolderLock]:
    """Hold the folder until the block ends; it is made if it is missing.

    Raise ConfigError if another process holds it.
    """
    try:
        make_folder(hold(folder))
        lock = FolderLock(folder)
    except OSError as error:
        raise ConfigError(
            f"{folder / LOCK_FILE} cannot be opened ({error.strerror}), so the folder cannot be held against other "
            "processes. Use a folder that you can write to, and remove whatever has that name."
        ) from error
    try:
        yield lock
    finally:
        lock.close()


def is_held(folder: Path) -> bool:
    """Tell whether a process of this user, on this machine, holds the folder. To try the lock could refuse another one
    that wants it, so Linux is asked whether the process that the file names has the file open."""
    path = folder / LOCK_FILE
    with suppress(OSError):  # it has ended, it belongs to somebody else, or there is no /proc
        for descriptor in Path("/proc", _read_pid(path), "fd").iterdir():
            with suppress(OSError):  # it was closed meanwhile
                if os.readlink(descriptor) == os.path.realpath(path):
                    return True
    return False


def _read_pid(path: Path) -> str:
    """Return the pid in a file; "unknown" if the file was removed or holds no number."""
    try:
        with open_file(path) as file:
            text = file.read(32).decode(errors="replace").strip()
    except OSError:
        return "unknown"
    return text if text.isdecimal() else "unknown"


def _is(path: Path, descriptor: int) -> bool:
    """Tell whether the path still leads to the file or folder that was opened."""
    try:
        now, opened = os.stat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino)
