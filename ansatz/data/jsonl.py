"""Problems from a JSONL file, one JSON object a line, with any field names; plain or compressed (.gz, .zst)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ansatz.data.files import lines_of, problem_file, source_name
from ansatz.data.rows import Reading, Row, problems_of, row_of, short
from ansatz.errors import DataError
from ansatz.types import Problem


def jsonl(
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
    """The file's problems in order, read as they are asked for; empty lines are skipped.

    The keys: see `rows.Reading`; those not given are recognised. split: what the problems are labelled with.

    Raises DataError for a missing file or a wrong row, with file and line; ConfigError for a setting out of its range.
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
    file = problem_file(path, expected="a JSONL file")
    return problems_of(read_rows(file), reading, split=split, source=source_name(file))


def read_rows(file: Path) -> Iterator[Row]:
    for number, line in enumerate(lines_of(file), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise DataError(
                f"{file} line {number}: this is no JSON ({error}), got {short(line.decode(errors='replace'))}; "
                "expected one JSON object a line. Repair the line or take it out."
            ) from error
        yield row_of(file, number, value)
