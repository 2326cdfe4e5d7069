"""JSON Lines files, appended to by one process that can be killed at any moment.

A line counts once its newline is written. A last line without one was cut off by a kill: it is ignored when the file is
read, and removed when the file is next opened for writing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from ansatz.errors import DataError
from ansatz.files import append_text, replacing
from ansatz.json_text import parse_json
from ansatz.links import read_bytes

Row = dict[str, Any]


def read_jsonl(path: Path) -> list[Row]:
    """Return all complete lines; none if the file does not exist. DataError names a line that is not a JSON object."""
    if not path.exists():
        return []
    rows: list[Row] = []
    try:
        lines = read_bytes(path).split(b"\n")[:-1]  # what follows the last newline was cut off
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Restore the file.") from error
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line, own=True)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not a JSON object ({error}). Remove the line.") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: not a JSON object (got {row!r:.60}). Remove the line.")
        rows.append(cast("Row", row))
    return rows


def write_jsonl(path: Path, rows: Iterable[Row]) -> None:
    """Replace the whole file at once: after a kill there is the old file or the new one."""
    with replacing(path) as file:
        file.writelines(to_line(row) for row in rows)


def append_jsonl(path: Path, row: Row) -> None:
    """Raise OSError if the disk is full; the file is then as it was."""
    append_text(path, to_line(row))


def keep_rows(path: Path, keep: Callable[[Row], bool]) -> list[Row]:
    """Remove the rows that `keep` rejects, and a last line that was cut off. Returns the remaining rows."""
    if not path.exists():
        return []
    rows = [row for row in read_jsonl(path) if keep(row)]
    write_jsonl(path, rows)
    return rows


def to_line(row: Row) -> str:
    """Return one line with its newline. Raise ValueError for nan and infinities, which JSON does not have.

    Half characters become question marks where the line is written (see `files.replacing`). `read_jsonl`, which takes
    them for damage, therefore reads every line that was written.
    """
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
