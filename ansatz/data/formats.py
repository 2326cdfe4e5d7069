"""Rows of a file of any of the formats that are read here, by the ending of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ansatz.data import csv, json, jsonl, parquet
from ansatz.data.files import problem_file
from ansatz.data.rows import Row
from ansatz.errors import DataError


def _tab_separated(file: Path) -> Iterator[Row]:
    return csv.read_rows(file, delimiter="\t")


FORMATS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": jsonl.read_rows,
    ".json": json.read_rows,
    ".csv": csv.read_rows,
    ".tsv": _tab_separated,
    ".parquet": parquet.read_rows,
}
"""By ending; .gz and .zst may follow all but the last."""


def open_rows(path: str | Path) -> Iterator[Row]:
    """The file's rows, read as they are asked for. DataError at once for a missing file or an unknown ending."""
    file = problem_file(path, expected=f"a {', '.join(FORMATS)} file")
    ending = Path(file.stem).suffix if file.suffix in (".gz", ".zst") else file.suffix
    if ending not in FORMATS:
        raise DataError(f"{file} ends with {ending!r}, expected one of {', '.join(FORMATS)}. Rename or convert it.")
    return FORMATS[ending](file)
