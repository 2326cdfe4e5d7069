"""Files of problems: opened plain or compressed (.gz, .zst), and replaced whole or not at all."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from ansatz.errors import DataError, MissingExtraError


def problem_file(path: str | Path, *, expected: str) -> Path:
    """The path, checked at once. expected: what file is meant ("a JSONL file"). DataError where there is no file."""
    file = Path(path)
    if not file.is_file():
        got = "is a folder" if file.is_dir() else f"does not exist (looked in {Path.cwd()})"
        raise DataError(
            f"problem file {str(path)!r} {got}; expected {expected}. Give its path in the data setting 'path'."
        )
    return file


def source_name(file: Path) -> str:
    """FOLDER/NAME without the endings: what the problems of a file are said to come from."""
    return f"{file.resolve().parent.name}/{file.name.partition('.')[0] or file.name}"


def lines_of(file: Path) -> Iterator[bytes]:
    """The file's lines with their ends, one at a time. DataError where what is compressed cannot be unpacked."""
    with open_bytes(file) as lines:
        try:
            yield from lines
        except Exception as error:  # each way of packing has errors of its own
            if isinstance(error, OSError | EOFError) or type(error).__name__ == "ZstdError":
                raise DataError(f"{file} cannot be unpacked ({error}). Fetch the file anew.") from error
            raise


def open_bytes(file: Path) -> IO[bytes]:
    """The file's content, unpacked where its name ends with .gz or .zst (MissingExtraError without zstandard)."""
    if file.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(file, "rb"))
    if file.suffix == ".zst":
        try:
            import zstandard
        except ImportError as error:
            missing_extra(f"{file} is packed with zstd", "zstandard", "data", error)
        unpacked: Any = zstandard.ZstdDecompressor().stream_reader(file.open("rb"), closefd=True)
        return cast("IO[bytes]", io.BufferedReader(unpacked))
    return file.open("rb")


@contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """A text file that becomes `path` when the block ends well, and is taken away when it does not.

    DataError where the folder cannot be written in.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = draft.open("w", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}). Give another path.") from error
    try:
        with file:
            yield file
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def missing_extra(why: str, package: str, extra: str, error: ImportError) -> NoReturn:
    """Raises MissingExtraError that says what to install."""
    raise MissingExtraError(
        f"{why}, which needs the package {package!r}. Install it: pip install 'ansatz-rl[{extra}]'."
    ) from error
