"""Problems from a CSV file whose first row names the fields."""

from __future__ import annotations

import csv as standard_csv
from collections.abc import Iterator
from pathlib import Path

from ansatz.data.files import lines_of, problem_file, source_name
from ansatz.data.rows import Reading, Row, problems_of
from ansatz.errors import ConfigError, DataError
from ansatz.types import Problem

LONGEST_FIELD = 16 * 2**20  # characters; the standard's own limit is under some worked solutions


def csv(
    *,
    split: str,
    path: str,
    delimiter: str = ",",
    question_key: str | None = None,
    answer_key: str | None = None,
    answer_from: str = "auto",
    id_key: str | None = None,
    level_key: str | None = None,
    solution_key: str | None = None,
    limit: int | None = None,
) -> Iterator[Problem]:
    """The file's problems in order, read as they are asked for. delimiter: one character, "\t" for tab-separated files.

    The other settings are those of `jsonl`. Raises DataError for a missing file or a wrong row, with file and line;
    ConfigError for a setting out of its range.
    """
    if len(delimiter) != 1:
        raise ConfigError(f'csv: delimiter = {delimiter!r}, expected one character, such as "," or a tab.')
    reading = Reading(
        question=question_key,
        answer=answer_key,
        answer_from=answer_from,
        id=id_key,
        level=level_key,
        solution=solution_key,
        limit=limit,
    )
    file = problem_file(path, expected="a CSV file")
    return problems_of(read_rows(file, delimiter=delimiter), reading, split=split, source=source_name(file))


def read_rows(file: Path, *, delimiter: str = ",") -> Iterator[Row]:
    standard_csv.field_size_limit(LONGEST_FIELD)
    reader = standard_csv.reader(_decoded(file), delimiter=delimiter, strict=True)
    start, names = 1, list[str]()
    try:
        for fields in reader:
            if not names:
                names = fields
            elif fields:
                row = Row(file, start, dict(zip(names, fields, strict=False)))
                if len(fields) != len(names):
                    row.fail(
                        f"there are {len(fields)} fields, the first row names {len(names)} ({', '.join(names)}). "
                        "Repair the row (a field with a comma or a line end in it stands in quotes)."
                    )
                yield row
            start = reader.line_num + 1
    except standard_csv.Error as error:
        raise DataError(f"{file} line {start}: this is no CSV ({error}). Repair the row or take it out.") from error


def _decoded(file: Path) -> Iterator[str]:
    for number, line in enumerate(lines_of(file), start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{file} line {number}: this is no UTF-8 text ({error}). Save the file in that encoding."
            ) from error
