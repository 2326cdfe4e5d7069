"""Problems from a Parquet file, read a batch of rows at a time. Needs the extra `data`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from ansatz.data.files import check_expansion, missing_extra
from ansatz.data.row_problems import file_source
from ansatz.data.rows import Row, json_value, row_of
from ansatz.errors import DataError

BATCH_ROWS = 64
"""Rows that are decoded together. One long text that all of them share takes few bytes in a file and many in memory."""


def read_rows(file: Path) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        missing_extra(f"{file} is a Parquet file", "pyarrow", "data", error)
    number, total = 0, 0
    try:
        with ParquetFile(file) as parquet_file:
            groups = (parquet_file.metadata.row_group(index) for index in range(parquet_file.num_row_groups))
            check_expansion(file, sum(group.total_byte_size for group in groups))
            for batch in parquet_file.iter_batches(batch_size=BATCH_ROWS):
                for value in batch.to_pylist():
                    number += 1
                    row = json_value(value)
                    total += _num_characters(row)
                    check_expansion(file, total)  # the footer may be wrong, or count a repeated text once
                    yield row_of(file, number, row, unit="row")
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{file} cannot be read as Parquet after row {number} ({error}). Download the file again."
        ) from error


def _num_characters(value: Any) -> int:
    """Return the characters of all texts in a JSON value; a number counts as one."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_num_characters, cast("dict[str, Any]", value).values()))
    return sum(map(_num_characters, cast("list[Any]", value))) if isinstance(value, list) else 1


parquet = file_source("parquet", read_rows, expected="a Parquet file")
