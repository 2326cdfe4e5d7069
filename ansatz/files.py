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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

HALF_CHARACTERS = "replace"
"""What happens to half characters in files that Ansatz writes: the error handler of `str.encode`."""


_OS_ERROR = re.compile(r"\(os error (\d+)\)")


def read_yaml(file: Path) -> Any:
    """Read a YAML file. Raise YAMLError if it is not one. libyaml, if PyYAML has it, takes a tenth of the time."""
    import yaml  # not with the module, which is loaded by commands that read no table

    return yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


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
    path.parent.mkdir(parents=True, exist_ok=True)
    check_not_special(path)  # without this, --out /dev/null would replace the device itself
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("w", encoding="utf-8", errors=HALF_CHARACTERS) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # as of a write that finds the disk full
            error.filename = os.fspath(path)
        raise
    sync(path.parent)


def make_private(folder: Path) -> Path:
    """Make the folder if it is missing, and let only its user read it and all that is in it. Return it."""
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(PermissionError):  # of a folder that another user has made
        folder.chmod(0o700)
    return folder


def write_text(path: Path, text: str) -> None:
    """Replace the file by `text`, at once."""
    with replacing(path) as file:
        file.write(text)


def append_text(path: Path, text: str) -> None:
    """Append to a file, which is made if it is missing. Half characters are written as by `replacing`.

    Raise OSError if the disk is full; the file is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    check_not_special(path)
    with path.open("ab", buffering=0) as file:
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
        raise OSError(errno.EINVAL, "It is a pipe, a device or a socket, expected a file", os.fspath(path))


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
    folder = next(each for each in (path, *path.absolute().parents) if each.is_dir())
    sizes = f"{_size(shutil.disk_usage(folder).free)} are free on this disk"
    if needed is not None:
        sizes = f"{_size(needed)} are needed, {sizes}"
    return f"{path} could not be written ({error.strerror or error}; {sizes})."


def _size(num_bytes: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.3g} {unit}"
    return f"{num_bytes} bytes"


def sync(path: Path) -> None:
    """Flush a file, or the list of names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: Path) -> str:
    """Return SHA-256 of the bytes of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
