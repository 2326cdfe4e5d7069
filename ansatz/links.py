"""The one place that opens, lists, makes and removes files in folders that somebody else may have made: below such a
folder, which `hold` names, no link is followed.

A run that was downloaded can have a link under any name that Ansatz reads or writes. Every call opens the held folder,
and goes from there component by component, so that no link is followed even if it is made meanwhile. The held folder
itself may be reached through links, as `runs` on another disk. Other paths are the user's own and are used as they are.

    hold(run)
    read_bytes(run / "rl" / "done.json")    OSError if `rl` or `done.json` is a link
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

LINK_REASON = "It is a link, and links in a run folder are not followed"
ODD_REASON = "It is a pipe, a device or a socket, expected a file"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FLAGS = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
}
_OF_LINKS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
"""The error numbers that systems return when they do not follow a link."""
_held = set[str]()


def hold(folder: Path) -> Path:
    """Follow no link below the folder from now on, in this process. Return the folder."""
    _held.update((os.path.abspath(folder), os.path.realpath(folder)))
    return folder


def open_file(path: Path, mode: str = "rb", **how: Any) -> Any:
    """Open a file as `open` does, but there is no mode `w`: a file is replaced by a draft (`files.replacing`).

    Raise OSError for a link, a pipe or a device below a held folder.
    """
    return os.fdopen(open_descriptor(path, _FLAGS[mode.replace("b", "")]), mode.replace("x", "w"), **how)


def open_descriptor(path: Path, flags: int) -> int:
    """Open a file and return its descriptor, otherwise as `open_file`."""
    with _folder_of(path) as (folder, name):
        if folder is None:
            return os.open(name, flags | os.O_CLOEXEC, 0o666)
        # Without O_NONBLOCK, a FIFO would be waited for without end.
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=folder)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(number, os.strerror(number) if number == errno.EISDIR else ODD_REASON, os.fspath(path))
        return descriptor


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file."""
    with open_file(path) as file:
        return file.read()


def read_text(path: Path, errors: str = "strict") -> str:
    """Return the text of a UTF-8 file, with any line ends as newlines."""
    with open_file(path, "r", encoding="utf-8", errors=errors) as file:
        return file.read()


def is_own_file(path: Path) -> bool:
    """Tell whether it is a file, and no link leads to it from the held folder."""
    with suppress(OSError, ValueError), _folder_of(path) as (folder, name):
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=folder is None).st_mode)
    return False


def list_folder(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the entries of a folder whose names match the pattern, sorted; none if the folder is missing.

    Raise OSError for a folder that is a link below a held one.
    """
    try:
        descriptor = open_folder(folder)
    except FileNotFoundError:
        return []
    try:
        return [folder / name for name in sorted(os.listdir(descriptor)) if fnmatch(name, pattern)]
    finally:
        os.close(descriptor)


def list_folders(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the folders in a folder under names of the pattern, sorted. Links to folders are not among them."""
    return [path for path in list_folder(folder, pattern) if path.is_dir() and not path.is_symlink()]


def make_folder(folder: Path, *, private: bool = False) -> Path:
    """Make a folder, with those above it, unless it is there, and return it. private: only its user can enter it."""
    descriptor = open_folder(folder, make=True)
    try:
        with suppress(PermissionError):  # of a folder that another user has made
            if private:
                os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
    return folder


def make_new_folder(folder: Path) -> Path:
    """Make a folder in the place of whatever has its name, and return it."""
    make_folder(folder.parent)
    remove(folder)
    with _folder_of(folder) as (parent, name):
        os.mkdir(name, dir_fd=parent)
    return folder


def remove(path: Path, *, ignore_errors: bool = False) -> None:
    """Remove a file, a folder with all that is in it, or a link but not its target; nothing if it is missing.

    ignore_errors: leave anything that cannot be removed. Otherwise raise OSError for it.
    """
    try:
        with _folder_of(path) as (folder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                shutil.rmtree(name, ignore_errors, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError:
        if not ignore_errors:
            raise


def rename(path: Path, target: Path) -> Path:
    """Rename a file or a folder, and return its new path. A file or a link of that name is replaced."""
    with _folder_of(path) as (folder, name), _folder_of(target) as (other, new):
        os.replace(name, new, src_dir_fd=folder, dst_dir_fd=other)
    return target


def copy_tree(source: Path, target: Path, *, hard_links: bool = False, ignore: tuple[str, ...] = ()) -> None:
    """Copy a folder to a new one. hard_links: instead of copies, where the file system allows them. ignore: patterns of
    names that are left out. Raise OSError for a link in a held folder."""
    check_no_links(source)

    def copy(name: str, new: str) -> None:
        if hard_links:
            with suppress(OSError):
                os.link(name, new)
                return
        shutil.copyfile(name, new)

    shutil.copytree(source, target, copy_function=copy, ignore=shutil.ignore_patterns(*ignore))


def check_no_links(path: Path, *, inner: bool = False, apart: str = "") -> None:
    """Raise OSError if the path, or anything in it at any depth, is a link below a held folder.

    inner: allow links to something in the path itself. apart: a name that may be a link. For libraries that open by
    their paths the files that they read, such as safetensors. None reads a file whose name begins with a dot, such as a
    draft.
    """
    if _root_of(path / "in") is None:
        return
    if _root_of(path) is not None:
        with suppress(FileNotFoundError), _folder_of(path) as (parent, name):
            if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, LINK_REASON, os.fspath(path))
    own = os.path.join(os.path.realpath(path), "")
    for place, folders, files in os.walk(path):
        for each in (os.path.join(place, each) for each in (*folders, *files) if each[0] != "." and each != apart):
            if os.path.islink(each) and not (inner and os.path.realpath(each).startswith(own)):
                raise OSError(errno.ELOOP, LINK_REASON, each)


def _root_of(path: Path) -> str | None:
    """Return the held folder that the path is in, the topmost one; None if there is none."""
    place, root = os.path.abspath(path), None
    while (above := os.path.dirname(place)) != place:  # texts, because paths take ten times as long
        place = above
        if place in _held:
            root = place
    return root


def open_folder(folder: Path, *, make: bool = False) -> int:
    """Open a folder and return its descriptor. make: make it, and those above it, where they are missing."""
    root = _root_of(folder)
    names = [] if root is None else os.path.abspath(folder)[len(root) :].strip(os.sep).split(os.sep)
    place = folder if root is None else Path(root)
    if make:
        place.mkdir(parents=True, exist_ok=True)
    at = os.open(place, _FOLDER)
    for name in names:
        place /= name
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=at)
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
        except OSError as error:
            raise _about(error, place, at) from error
        finally:
            os.close(at)
        at = inner
    return at


@contextmanager
def _folder_of(path: Path) -> Iterator[tuple[int | None, str]]:
    """Open the folder of a path, and return it with the name in it: (None, path) for a path outside of held folders.

    Errors within the block are about the path.
    """
    if _root_of(path) is None:
        yield None, os.fspath(path)
        return
    absolute = Path(os.path.abspath(path))
    folder = open_folder(absolute.parent)
    try:
        yield folder, absolute.name
    except OSError as error:
        if error.filename != absolute.name:
            raise
        raise _about(error, absolute, folder) from error
    finally:
        os.close(folder)


def _about(error: OSError, path: Path, folder: int) -> OSError:
    """Return an error about a name in a folder with the whole path, and with a sentence if a link is the reason."""
    with suppress(OSError):
        is_link = stat.S_ISLNK(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode)
        if is_link and error.errno in _OF_LINKS:
            return OSError(errno.ELOOP, LINK_REASON, os.fspath(path))
    return OSError(error.errno, error.strerror, os.fspath(path))
