"""Problems from a Parquet file, read a batch of rows at a time. Needs the extra `data`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ansatz.data.files import missing_extra, problem_file, source_name
from ansatz.data.rows import Reading, Row, plain, problems_of, row_of
from ansatz.errors import DataError
from ansatz.types import Problem

ROWS_AT_ONCE = 1024


def parquet(
    *,
    split: str,
    path: str,
    question_key: str | None = None,
    answer_key: str | None = None,
    answer_from: str = "auto",
    id_key: str | None = None,
    level_key: str | None = None,
    solution_key: str | None = None,
    limit: int | None = None,
) -> Iterator[Problem]:
    """The file's problems in order, read as they are asked for. The settings are those of `jsonl`.

    Raises DataError for a missing file or a wrong row, with file and row; ConfigError for a setting out of its range;
    MissingExtraError without pyarrow.
    """
    reading = Reading(
        question=question_key,
        answer=answer_key,
        answer_from=answer_from,
        id=id_key,
        level=level_key,
        solution=solution_key,
        limit=limit,
    )
    file = problem_file(path, expected="a Parquet file")
    return problems_of(read_rows(file), reading, split=split, source=source_name(file))


def read_rows(file: Path) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        missing_extra(f"{file} is a Parquet file", "pyarrow", "data", error)
    number = 0
    try:
        with ParquetFile(file) as opened:
            for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE):
                for value in batch.to_pylist():
                    number += 1
                    yield row_of(file, number, plain(value), unit="row")
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{file} cannot be read as Parquet after row {number} ({error}). Fetch the file anew."
        ) from error
