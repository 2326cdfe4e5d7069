"""Problem files: opening them plain or compressed (.gz, .zst), and replacing them atomically."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from glob import glob, has_magic
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from ansatz.errors import DataError, MissingExtraError, MissingFileError, install_command
from ansatz.files import is_special
from ansatz.files import replacing as atomic_file


def problem_file(path: str | Path, *, expected: str) -> Path:
    """Return the path, checked at once. expected: the kind of file, such as "a JSONL file".

    Raise MissingFileError if it does not exist, DataError if it is not a file.
    """
    file = Path(path)
    if not file.is_file():
        kind: type[DataError] = DataError if file.exists() or file.is_symlink() else MissingFileError
        problem = f"does not exist (current folder: {Path.cwd()})"
        if file.is_dir():
            problem = "is a folder"
        elif is_special(file):
            problem = "is a pipe, a device or a socket, which cannot be read twice"
        elif file.is_symlink():
            problem = "is a link that leads nowhere"
        raise kind(f"problem file {str(path)!r} {problem}; expected {expected}. Give the path of such a file.")
    return file


def problem_files(path: str | Path | Sequence[str | Path], *, expected: str) -> list[Path]:
    """Return the files of a path, of a list of paths, or of patterns such as "part-*.jsonl"; patterns are sorted by
    name.

    expected: the kind of file, such as "a JSONL file". Raise MissingFileError if a file does not exist or a pattern
    matches nothing.
    """
    paths = [path] if isinstance(path, str | Path) else path
    files: list[Path] = []
    for name in map(str, paths):
        matches = sorted(glob(name, recursive=True)) if has_magic(name) and not Path(name).exists() else [name]
        if not matches:
            raise MissingFileError(
                f"no file matches the pattern {name!r} (current folder: {Path.cwd()}); expected {expected}."
            )
        files += [problem_file(match, expected=expected) for match in matches]
    return files


def read_as(file: Path, kind: str) -> str:
    """Say how to read a file of this kind: by its extension at the command line, by its source in a recipe."""
    source = f"In a recipe, use source: {'csv' if kind == 'tsv' else kind}."
    return source if file.suffix.lower() == f".{kind}" else f"Rename it to .{kind}. {source}"


def source_name(file: Path, *, num_folders: int = 1) -> str:
    """Return FOLDER/NAME without the extension: the `source` of the problems in a file."""
    return "/".join([*file.resolve().parent.parts[-num_folders:], name_of_file(file)])


def name_of_file(file: Path) -> str:
    """Return the name of a file without its extension, as in `part.00` for part.00.jsonl.gz."""
    return Path(file.stem if file.suffix in (".gz", ".zst") else file.name).stem


MAX_LINE_BYTES = 64 << 20
"""Longest line of a problem file. Without this limit, a line break that is missing makes one line of a whole file."""
MAX_WHOLE_BYTES = 1 << 30
"""Largest content of a file that can only be read as a whole."""
MAX_EMPTY_LINES = 100_000
"""Most empty lines of a file that has ten times fewer others. A few kilobytes that are compressed can hold hundreds of
millions of them, which would be read for minutes."""
_MAX_EXPANSION, _ALWAYS_ALLOWED_BYTES = 100, 64 << 20
_PART_BYTES = 1 << 20


def lines_of(file: Path) -> Iterator[bytes]:
    """Yield the file's lines with their line ends, one at a time.

    Raise DataError if a compressed file cannot be decompressed or expands beyond reason, for a line that is too long,
    and for too many empty ones.
    """
    with _decompressing(file) as content:
        total, number, num_empty = 0, 0, 0
        while line := content.readline(MAX_LINE_BYTES + 1):
            total, number = total + len(line), number + 1
            num_empty += line.isspace()
            if num_empty > MAX_EMPTY_LINES and num_empty > 10 * (number - num_empty):
                raise DataError(
                    f"{file} has {num_empty:,} empty lines up to line {number:,}, and hardly any others. No real data "
                    "does. Remove them, or download the file again."
                )
            check_expansion(file, total)
            if len(line) > MAX_LINE_BYTES:
                raise DataError(
                    f"{file} line {number}: longer than {MAX_LINE_BYTES >> 20} MiB. Divide the file into lines."
                )
            yield line


def whole_of(file: Path) -> bytes:
    """Return the whole content. Raise DataError if it cannot be decompressed, or is too large to be read at once."""
    content = bytearray()
    with _decompressing(file) as parts:
        while part := parts.read(_PART_BYTES):
            content += part
            check_expansion(file, len(content))
            if len(content) > MAX_WHOLE_BYTES:
                raise DataError(
                    f"{file} holds more than {MAX_WHOLE_BYTES >> 30} GiB, which have to be read at once. Convert it to "
                    "JSON lines (.jsonl), which are read one by one."
                )
    return bytes(content)


def check_expansion(file: Path, num_bytes: int) -> None:
    """Raise DataError if num_bytes of content have been read from a compressed file, and that is more than real rows
    can become. A few megabytes could otherwise fill the memory."""
    if num_bytes > _ALWAYS_ALLOWED_BYTES and num_bytes > _MAX_EXPANSION * (size := file.stat().st_size):
        raise DataError(
            f"{file} holds {size:,} bytes, which expand to more than {_MAX_EXPANSION} times as many. No real data "
            "does. Decompress it by hand if you trust it."
        )


@contextmanager
def _decompressing(file: Path) -> Iterator[IO[bytes]]:
    with open_bytes(file) as content:
        try:
            yield content
        except Exception as error:  # each compression library has its own errors
            if isinstance(error, OSError) and error.errno is not None:  # the file system's, not the library's
                raise DataError(f"{file} cannot be read ({error.strerror}). Give another file.") from error
            if isinstance(error, OSError | EOFError | zlib.error) or type(error).__name__ == "ZstdError":
                raise DataError(f"{file} cannot be decompressed ({error}). Download the file again.") from error
            raise


def open_bytes(file: Path) -> IO[bytes]:
    """Return the file's content, decompressed if the name ends with .gz or .zst (MissingExtraError without
    zstandard)."""
    if file.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(file, "rb"))
    if file.suffix == ".zst":
        try:
            import zstandard
        except ImportError as error:
            missing_extra(f"{file} is compressed with zstd", "zstandard", "data", error)
        stream: Any = zstandard.ZstdDecompressor().stream_reader(file.open("rb"), closefd=True)
        return cast("IO[bytes]", io.BufferedReader(stream))
    return file.open("rb")


@contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """Replace a file as `ansatz.files.replacing` does, but raise DataError if the folder is not writable."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(atomic_file(path))
        except OSError as error:
            raise DataError(f"{path} cannot be written ({error.strerror}). Choose another path.") from error
        yield file


def missing_extra(why: str, package: str, extra: str, error: ImportError) -> NoReturn:
    """Raise a MissingExtraError that names the package to install. why: the sentence's start, without a stop."""
    raise MissingExtraError(
        f"{why}, which needs the package {package!r}. Install it: {install_command(extra)}"
    ) from error
