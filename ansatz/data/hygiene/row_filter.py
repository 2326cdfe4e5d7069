"""Rows through a judge: what stays is written as it was, what goes is told of in a report beside it."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from ansatz.data.files import replacing
from ansatz.data.hygiene.report import report_path, write_report
from ansatz.data.rows import Row
from ansatz.errors import ConfigError
from ansatz.types import Problem

Json = dict[str, Any]


def filter_rows(
    rows: Iterable[tuple[Row, Problem]],
    judge: Callable[[Problem], Json | None],
    out: Path,
    *,
    about: Json | None = None,
) -> Json:
    """Writes the rows that `judge` says nothing against to `out`, one JSON object a line, and the report beside it.

    judge: None for a row that stays, else why it goes: an object with `kind`. about: what to put at the report's head,
    such as the settings. The report (see `report`) has rows, kept, dropped, kinds, and a line and an id for each row
    that went. Both files are written whole or not at all, the report last. The input may be `out` itself.
    Returns the report without the rows: these wait on the disk, since they may be most of a large file.
    """
    read, kinds = 0, Counter[str]()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as dropped:
        with replacing(out) as file:
            kept = _Lines(file)
            for row, problem in rows:
                read += 1
                against = judge(problem)
                if against is None:
                    kept.write(to_line(row.values))
                else:
                    kinds[str(against["kind"])] += 1
                    dropped.write(json.dumps({"line": row.line, "id": problem.id, **against}) + "\n")
        head: Json = {**(about or {}), "rows": read, "kept": kept.count, "dropped": read - kept.count}
        head |= {"kinds": dict(sorted(kinds.items())), "sha256": kept.digest}
        dropped.seek(0)
        write_report(out, head, dropped)
    return head


def to_line(values: Json) -> str:
    """One line with its newline; half characters, which are no Unicode, stay escaped."""
    line = json.dumps(values, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        line = json.dumps(values)
    return line + "\n"


def split_rows(
    rows: Iterable[tuple[Row, Problem]],
    goes: Callable[[Problem], bool],
    out: Path,
    other: Path,
    *,
    about: Json | None = None,
) -> tuple[int, int]:
    """Writes each row to `other` where `goes` says so, else to `out`, and a report beside each; returns how many each
    has.

    All files are written whole or not at all. ConfigError where two of them are one.
    """
    if out.resolve() == other.resolve() or report_path(out).resolve() == report_path(other).resolve():
        raise ConfigError(f"both parts would be written to {out}, or their reports. Give two names.")
    with replacing(out) as kept, replacing(other) as held:
        sides = _Lines(kept), _Lines(held)
        for row, problem in rows:
            sides[goes(problem)].write(to_line(row.values))
    read = sum(side.count for side in sides)
    for place, side in zip((out, other), sides, strict=True):
        write_report(place, {**(about or {}), "rows": read, "kept": side.count, "sha256": side.digest})
    return sides[0].count, sides[1].count


class _Lines:
    """Lines on their way to a file, counted and hashed."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._hash, self.count = file, hashlib.sha256(), 0

    def write(self, line: str) -> None:
        self._file.write(line)
        self._hash.update(line.encode())
        self.count += 1

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
