"""Problems from a JSON file: a list of rows, or an object in which one field holds that list."""

from __future__ import annotations

import json as standard_json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from ansatz.data.files import open_bytes, problem_file, source_name
from ansatz.data.rows import Reading, Row, problems_of, row_of, short
from ansatz.errors import DataError
from ansatz.types import Problem


def json(
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
    """The file's problems in order. The settings are those of `jsonl`; the file is held in memory as a whole.

    Raises DataError for a missing file or a wrong row, with file and row; ConfigError for a setting out of its range.
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
    file = problem_file(path, expected="a JSON file")
    return problems_of(read_rows(file), reading, split=split, source=source_name(file))


def read_rows(file: Path) -> Iterator[Row]:
    try:
        with open_bytes(file) as content:
            whole: Any = standard_json.loads(content.read().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{file}: this is no JSON ({error}), expected a list of rows. Repair the file; one object a line is read "
            "by the source jsonl."
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
