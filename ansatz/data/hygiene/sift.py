"""Rows through a judge: what stays is written as it was, what goes is told of in a report beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ansatz.data.files import replacing
from ansatz.data.rows import Row
from ansatz.errors import ConfigError
from ansatz.types import Problem

Json = dict[str, Any]


def sift(
    rows: Iterable[tuple[Row, Problem]],
    judge: Callable[[Problem], Json | None],
    out: Path,
    *,
    about: Json | None = None,
) -> Json:
    """Writes the rows that `judge` says nothing against to `out`, one JSON object a line, and the report beside it.

    judge: None for a row that stays, else why it goes: an object with `kind`. about: what to put at the report's head,
    such as the settings. The report (see `report_path`) has rows, kept, dropped, kinds, and a line and an id for each
    row that went. Both files are written whole or not at all, the report last. The input may be `out` itself.
    Returns the report.
    """
    read, dropped = 0, list[Json]()
    with replacing(out) as file:
        for row, problem in rows:
            read += 1
            against = judge(problem)
            if against is None:
                file.write(to_line(row.values))
            else:
                dropped.append({"line": row.line, "id": problem.id, **against})
    kinds = Counter(str(one["kind"]) for one in dropped)
    report: Json = {**(about or {}), "rows": read, "kept": read - len(dropped), "dropped": len(dropped)}
    report |= {"kinds": dict(sorted(kinds.items())), "dropped_rows": dropped}
    with replacing(report_path(out)) as file:
        file.write(json.dumps(report, ensure_ascii=True, indent=2) + "\n")
    return report


def report_path(out: Path) -> Path:
    """OUT.report.json, OUT without its last ending."""
    return out.with_suffix(".report.json")


def to_line(values: Json) -> str:
    """One line with its newline; half characters, which are no Unicode, stay escaped."""
    line = json.dumps(values, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        line = json.dumps(values)
    return line + "\n"


def divide(
    rows: Iterable[tuple[Row, Problem]], goes: Callable[[Problem], bool], out: Path, other: Path
) -> tuple[int, int]:
    """Writes each row to `other` where `goes` says so, else to `out`; returns how many each has.

    Both files are written whole or not at all. ConfigError where they are one file.
    """
    if out.resolve() == other.resolve():
        raise ConfigError(f"both parts would be written to {out}. Give two files.")
    counts = [0, 0]
    with replacing(out) as kept, replacing(other) as held:
        for row, problem in rows:
            away = goes(problem)
            (held if away else kept).write(to_line(row.values))
            counts[away] += 1
    return counts[0], counts[1]
