"""Files that are replaced as a whole: after a kill at any moment there is the old file or the new one.

The new content is written to a draft in the same folder, flushed to disk, and renamed over the old file. Without the
flush, a machine that loses power after the rename can come back with an empty file under the final name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from ansatz.links import ODD_REASON, make_folder, open_descriptor, open_file, open_folder, read_text, remove, rename

HALF_CHARACTERS = "replace"
"""The error handler of `str.encode` for half characters in files that Ansatz writes."""


_OS_ERROR = re.compile(r"\(os error (\d+)\)")


def read_yaml(file: Path) -> Any:
    """Read a YAML file. Raise YAMLError if it is not one. libyaml, if PyYAML has it, takes a tenth of the time."""
    import yaml  # not with the module, which is loaded by commands that read no table

    return yaml.load(read_text(file), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def has_half_character(text: str) -> bool:
    """Tell whether it holds a lone surrogate, which no tokenizer and no UTF-8 file can take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 draft of `path`; the draft becomes `path` when the block ends without an error.

    Half characters (lone surrogates), which UTF-8 cannot hold, are written as question marks: they come from file names
    and from fields of other people's rows, and must not end a run that has nearly finished. Missing parent folders are
    made. If the block raises, the draft is removed and `path` stays as it was.
    """
    with open_draft(path, "x", encoding="utf-8", errors=HALF_CHARACTERS) as file:
        yield file


@contextmanager
def open_draft(path: Path, mode: str = "xb", **how: Any) -> Iterator[Any]:
    """Open a draft of `path` in any mode with x, otherwise as `replacing`."""
    make_folder(path.parent)
    check_not_special(path)  # without this, --out /dev/null would replace the device itself
    draft = path.with_name(f".{path.name}.draft")
    try:
        remove(draft)  # which a kill has left, or somebody who leads it elsewhere
        with open_file(draft, mode, **how) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename(draft, path)
    except BaseException as error:
        remove(draft)
        if isinstance(error, OSError) and error.filename is None:  # as of a write that finds the disk full
            error.filename = os.fspath(path)
        raise
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace the file by `text`, at once."""
    with replacing(path) as file:
        file.write(text)


def append_text(path: Path, text: str) -> None:
    """Append to a file, which is made if it is missing. Half characters are written as by `replacing`.

    Raise OSError if the disk is full; the file is then as it was.
    """
    make_folder(path.parent)
    check_not_special(path)
    with open_file(path, "ab", buffering=0) as file:
        size, rest = file.tell(), memoryview(text.encode(errors=HALF_CHARACTERS))
        try:
            while rest:
                rest = rest[file.write(rest) or 0 :]
        except OSError:
            file.truncate(size)
            raise


def is_special(path: Path) -> bool:
    """Tell whether it is a pipe, a device or a socket, or a link to one. Reading one can wait or go on for ever."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_not_special(path: Path) -> None:
    """Raise OSError for a pipe, a device or a socket."""
    if is_special(path):
        raise OSError(errno.EINVAL, ODD_REASON, os.fspath(path))


def check_ordinary_files(folder: Path) -> None:
    """Raise OSError if anything in the folder, at any depth, is a pipe, a device or a socket."""
    for parent, _, names in os.walk(folder):
        for name in names:
            check_not_special(Path(parent, name))


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Let libraries that are written in Rust, such as safetensors, report a failed write within the block as everything
    else does: by an OSError, which is about `path`."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # of the library's own kind: SafetensorError, or a plain Exception of tokenizers
        if (match := _OS_ERROR.search(str(error))) is None:
            raise
        raise OSError(int(match[1]), os.strerror(int(match[1])), os.fspath(path)) from error


def not_written(path: Path, error: OSError, *, needed: int | None = None) -> str:
    """Return a sentence about a file or folder that could not be written. needed: its bytes, if they are known."""
    reason = str(error.strerror or error)
    if error.errno in (None, *OF_SPACE):
        folder = next(each for each in (path, *path.absolute().parents) if each.is_dir())
        sizes = [f"{_size(needed)} are needed"] if needed is not None else []
        sizes.append(f"{_size(shutil.disk_usage(folder).free)} are free on this disk")
        reason = f"{reason}; {', '.join(sizes)}"
    return f"{path} could not be written ({reason})."


OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a disk, a quota or a limit that is full."""
_REMEDIES = {
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Remove files of yours on this disk, whose quota is used up",
    errno.EFBIG: "Raise the limit of ulimit -f",
    errno.EROFS: "Mount the disk for writing, or use a folder on another one",
    errno.EACCES: "Get the right to write there, or use another folder",
    errno.EPERM: "Get the right to write there, or use another folder",
    errno.EIO: "The disk or its connection fails: check it, or use another one",
    errno.ELOOP: "Remove the link, or put in its place what it leads to",
    errno.ENOTDIR: "Remove the file that has the name of a folder",
    errno.EISDIR: "Remove the folder that has the name of a file",
    errno.EMFILE: "Raise the limit of ulimit -n",
    errno.ENODEV: "Connect the disk again",
    errno.ESTALE: "Mount the network file system again",
}


def remedy(error: Exception) -> str:
    """Return advice about a file that could not be written, as a sentence without its full stop.

    error: an OSError, or an error that was raised from one.
    """
    number = getattr(error if isinstance(error, OSError) else error.__cause__, "errno", None)
    return _REMEDIES.get(number or errno.ENOSPC, "Remove the cause of this error")


def _size(num_bytes: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.3g} {unit}"
    return f"{num_bytes} bytes"


def sync(path: Path) -> None:
    """Flush a file, or the list of names in a folder, to disk."""
    descriptor = open_folder(path) if path.is_dir() else open_descriptor(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: Path) -> str:
    """Return SHA-256 of the bytes of a file, in hexadecimal digits."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
