"""Problems from a CSV file whose first row names the fields."""

from __future__ import annotations

import csv as standard_csv
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from ansatz.data.files import lines_of, problem_files, read_as
from ansatz.data.row_problems import row_source, sources_of_files
from ansatz.data.rows import Row, row_of
from ansatz.errors import ConfigError, DataError

LONGEST_FIELD = 16 * 2**20  # characters; the standard library's own limit is below some worked solutions


def _open_csv(*, split: str, path: str | list[str], delimiter: str = ",") -> Iterable[tuple[Iterable[Row], str]]:
    """Return the problems of the file, or of several files, in order, read on demand.

    delimiter: one character, "\t" for tab-separated files. A file with semicolons or tabs in its header, and no commas,
    is recognised.

    Raise DataError for a missing file or a wrong row, with file and line; raise ConfigError for a setting outside its
    range.
    """
    if len(delimiter) != 1:
        raise ConfigError(f'csv: delimiter = {delimiter!r}, expected one character, such as "," or a tab.')
    files = problem_files(path, expected="a CSV file")
    return [
        (read_rows(file, delimiter=delimiter), name) for file, name in zip(files, sources_of_files(files), strict=True)
    ]


csv = row_source("csv", _open_csv)


def read_rows(file: Path, *, delimiter: str = ",") -> Iterator[Row]:
    standard_csv.field_size_limit(LONGEST_FIELD)
    lines = _decode(file)
    header = next(lines, "")
    if header.lstrip().startswith("{"):
        raise DataError(f"{file}: the first line is a JSON object, so this is not a CSV file. {read_as(file, 'jsonl')}")
    if delimiter == "," and "," not in header:
        delimiter = next((other for other in ";\t" if other in header), ",")
    reader = standard_csv.reader(chain([header], lines), delimiter=delimiter, strict=True)
    start, names = 1, list[str]()
    try:
        for values in reader:
            if not names:
                names = values
            elif values:
                row = row_of(file, start, dict(zip(names, values, strict=False)), typed=False)
                if len(values) != len(names):
                    row.fail(
                        f"the row has {len(values)} fields, but the header names {len(names)} ({', '.join(names)}). "
                        "Repair the row. A field that contains a comma or a line end must be in quotes."
                    )
                yield row
            start = reader.line_num + 1
    except standard_csv.Error as error:
        raise DataError(f"{file} line {start}: not valid CSV ({error}). Repair the row or remove it.") from error


def _decode(file: Path) -> Iterator[str]:
    for number, line in enumerate(lines_of(file), start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{file} line {number}: not valid UTF-8 ({error}). Save the file with that encoding."
            ) from error
