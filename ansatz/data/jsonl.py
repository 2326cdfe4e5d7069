"""Problems from a JSONL file, one JSON object per line, with any field names; plain or compressed (.gz, .zst)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ansatz.data.files import lines_of, read_as
from ansatz.data.row_problems import file_source
from ansatz.data.rows import Row, row_of
from ansatz.data.unfit import short
from ansatz.errors import DataError
from ansatz.json_text import parse_json


def read_rows(file: Path) -> Iterator[Row]:
    for number, line in enumerate(lines_of(file), start=1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            _check_is_no_table(file, line, number)
            raise DataError(
                f"{file} line {number}: not valid JSON ({error}), got {short(line.decode(errors='replace'))}; "
                "expected one JSON object per line. Repair the line or remove it."
            ) from error
        yield row_of(file, number, value)


def _check_is_no_table(file: Path, line: bytes, number: int) -> None:
    """Raise DataError if the first line is the header of a table, or the beginning of a list that spans lines."""
    text = line.decode(errors="replace").strip("\ufeff \t\r\n")
    if number == 1 and text.startswith("["):
        raise DataError(f"{file}: the file is a JSON list, not one JSON object per line. {read_as(file, 'json')}")
    delimiter = next((each for each in ",;\t" if each in text), "")
    names = [name.strip(' "') for name in text.split(delimiter)] if delimiter else []
    if number == 1 and names and all(re.fullmatch(r"[^\W\d][\w .-]*", name) for name in names):
        kind = "tsv" if delimiter == "\t" else "csv"
        raise DataError(
            f"{file}: the first line {short(text)} is the header of a table, not a JSON object. {read_as(file, kind)}"
        )


jsonl = file_source("jsonl", read_rows, expected="a JSONL file")
