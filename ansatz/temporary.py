"""Folders in the temporary folder that name the process they belong to, so that the next start can remove the leftovers
of a kill, and nothing that is in use or belongs to somebody else.

    /tmp/ansatz-KIND-MACHINE-PROCESS-START-NUMBER

Names are short, because Ray puts sockets into its folder, and their paths may have at most 107 characters.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_numbers = itertools.count()


def make_folder(kind: str, parent: str = "") -> Path:
    """Make a new folder of this process, which only its user can enter. parent: by default the temporary folder."""
    place = parent or tempfile.gettempdir()
    while True:
        path = Path(place, f"ansatz-{kind}-{_owner(os.getpid())}-{_short(next(_numbers))}")
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path


@contextmanager
def folder_of_program(kind: str, parent: str = "") -> Iterator[str]:
    """Make a folder that exists until the block ends. Left ones of this kind are removed once in each process."""
    _remove_abandoned_once(kind, parent, os.getpid())
    path = make_folder(kind, parent)
    try:
        yield str(path)
    finally:
        remove(path)


def remove_abandoned(kind: str, parent: str = "", *, before: Callable[[str], None] = lambda folder: None) -> None:
    """Remove the folders of this kind whose processes, of this user and on this machine, have ended.

    before: called with each folder first, such as to end processes that still use it.
    """
    machine = _machine()
    for path in Path(parent or tempfile.gettempdir()).glob(f"ansatz-{kind}-{machine}-*"):
        owner = path.name.removeprefix(f"ansatz-{kind}-").rpartition("-")[0]
        with suppress(OSError, ValueError):
            about = path.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or not _has_ended(owner):
                continue
            before(str(path))
            remove(path)


def remove(folder: Path) -> None:
    """Remove a folder of this user, even if a program has locked its own folders inside it."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for place, names, _ in os.walk(folder):
            for name in names:
                with suppress(OSError):
                    if not os.path.islink(path := os.path.join(place, name)):
                        os.chmod(path, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _remove_abandoned_once(kind: str, parent: str, _pid: int) -> None:
    remove_abandoned(kind, parent)


@functools.cache
def _machine() -> str:
    """Identify a kernel since its start, and a space of process numbers in it, such as a container's."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return hashlib.sha256(f"{boot}{os.stat('/proc/self/ns/pid').st_ino}".encode()).hexdigest()[:4]
    return "other"


@functools.cache
def _owner(pid: int) -> str:
    return f"{_machine()}-{_short(pid)}-{_short(_start_of(pid))}"


def _short(number: int) -> str:
    """Write the number in digits and letters, as `int(text, 36)` reads it."""
    head, last = divmod(number, 36)
    return (_short(head) if head else "") + "0123456789abcdefghijklmnopqrstuvwxyz"[last]


def _has_ended(owner: str) -> bool:
    """Tell whether the process is gone. Raise ValueError for any other text."""
    _, pid, start = owner.split("-")
    try:
        return _start_of(int(pid, 36)) != int(start, 36)
    except (FileNotFoundError, ProcessLookupError):
        return True


def _start_of(pid: int) -> int:
    """Return when the process was started, in ticks of the kernel; 0 where /proc does not tell."""
    if not Path("/proc/self/stat").exists():
        os.kill(pid, 0)
        return 0
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    if fields[0] in "ZX":
        raise ProcessLookupError(pid)
    return int(fields[19])
