"""Problems from a JSONL file, one JSON object per line, with any field names; plain or compressed (.gz, .zst)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ansatz.data.files import lines_of
from ansatz.data.row_problems import file_source
from ansatz.data.rows import Row, row_of, short
from ansatz.errors import DataError
from ansatz.json_text import parse_json


def read_rows(file: Path) -> Iterator[Row]:
    for number, line in enumerate(lines_of(file), start=1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            raise DataError(
                f"{file} line {number}: not valid JSON ({error}), got {short(line.decode(errors='replace'))}; "
                "expected one JSON object per line. Repair the line or remove it."
            ) from error
        yield row_of(file, number, value)


jsonl = file_source("jsonl", read_rows, expected="a JSONL file")
