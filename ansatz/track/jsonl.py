"""JSON Lines on disk, appended to by one process that may be killed at any moment.

A line counts once its newline is written; a torn last line is dropped on reading and on the next opening.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ansatz.errors import DataError

Row = dict[str, Any]


def read_jsonl(path: Path) -> list[Row]:
    """All whole lines; an absent file has none. DataError names a broken line that is not the torn last one."""
    if not path.exists():
        return []
    rows: list[Row] = []
    lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last newline is torn
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not a JSON object ({error}). Remove the line to go on.") from error
    return rows


def write_jsonl(path: Path, rows: Iterable[Row]) -> None:
    """Replaces the whole file at once: a kill leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(to_line(row))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def append_jsonl(path: Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(to_line(row))


def keep_rows(path: Path, keep: Callable[[Row], bool]) -> list[Row]:
    """Drops the rows that `keep` refuses, and a torn last line; gives back the rows that stay."""
    if not path.exists():
        return []
    rows = [row for row in read_jsonl(path) if keep(row)]
    write_jsonl(path, rows)
    return rows


def to_line(row: Row) -> str:
    """One line with its newline. ValueError for NaN and infinities, which are no JSON."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
