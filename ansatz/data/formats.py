"""The rows of a file in any supported format, selected by its extension."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ansatz.data import csv, json, jsonl, parquet
from ansatz.data.files import problem_file
from ansatz.data.rows import Row
from ansatz.errors import DataError

FORMATS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": jsonl.read_rows,
    ".json": json.read_rows,
    ".csv": csv.read_rows,
    ".tsv": partial(csv.read_rows, delimiter="\t"),
    ".parquet": parquet.read_rows,
}
"""By extension. All except the last can be followed by .gz or .zst."""


def open_rows(path: str | Path) -> Iterator[Row]:
    """Return the file's rows, read on demand. Raise DataError at once for a missing file or an unknown extension, and
    while they are read for a file without rows: whatever was asked about it, an answer would say nothing."""
    file = problem_file(path, expected=f"a {', '.join(FORMATS)} file")
    extension = Path(file.stem).suffix if file.suffix in (".gz", ".zst") else file.suffix
    if extension not in FORMATS:
        raise DataError(
            f"{file} has the extension {extension!r}, expected one of {', '.join(FORMATS)}. Rename or convert it."
        )
    return _not_none(FORMATS[extension](file), file)


def _not_none(rows: Iterator[Row], file: Path) -> Iterator[Row]:
    first = next(rows, None)
    if first is None:
        raise DataError(f"{file} has no rows. Give a file with at least one.")
    yield first
    yield from rows
