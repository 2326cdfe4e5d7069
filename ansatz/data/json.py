"""Problems from a JSON file: a list of rows, or an object with exactly one list in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from ansatz.data.files import whole_of
from ansatz.data.row_problems import file_source
from ansatz.data.rows import Row, row_of
from ansatz.data.unfit import short
from ansatz.errors import DataError
from ansatz.json_text import parse_json


def read_rows(file: Path) -> Iterator[Row]:
    try:
        whole = parse_json(whole_of(file))
    except ValueError as error:
        raise DataError(
            f"{file}: not valid JSON ({error}), expected a list of rows. Repair the file. Files with one object per "
            "line are read by the source jsonl (file name .jsonl)."
        ) from error
    for number, value in enumerate(_list_in(whole, file), start=1):
        yield row_of(file, number, value, unit="row")


def _list_in(whole: Any, file: Path) -> list[Any]:
    if isinstance(whole, list):
        return cast("list[Any]", whole)
    fields = cast("dict[str, Any]", whole) if isinstance(whole, dict) else {}
    lists = [cast("list[Any]", value) for value in fields.values() if isinstance(value, list)]
    if len(lists) != 1:
        raise DataError(
            f"{file}: got {short(whole)}, expected a list of rows, or an object with one list in it. Repair the file."
        )
    return lists[0]


json = file_source("json", read_rows, expected="a JSON file")
