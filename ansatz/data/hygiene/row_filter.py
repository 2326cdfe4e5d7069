"""Filters, splits and rates rows: rows that stay are written unchanged or with their pass rate, rows that are dropped
are listed in the report."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from ansatz.data.files import replacing
from ansatz.data.hygiene.normalize import split_key
from ansatz.data.hygiene.report import write_data_report
from ansatz.data.keyed_random import hash64
from ansatz.data.rows import Row
from ansatz.data.unfit import RowError, UnfitRow
from ansatz.errors import ConfigError
from ansatz.files import has_half_character
from ansatz.types import Problem

Json = dict[str, Any]


def filter_rows(
    rows: Iterable[tuple[Row, Problem | RowError]],
    reject: Callable[[Problem], Json | None],
    out: Path,
    *,
    about: Json,
) -> Json:
    """Write the rows that stay to `out`, one JSON object per line, and the report next to it.

    rows: each with its problem, or with the reason why it has none; such rows are dropped as "unreadable".
    reject: None for a row that stays, otherwise the reason: an object with the key `kind`. about: the head of the
    report, such as the settings. The report (see `report`) has the counts rows, kept, dropped and kinds, and line and
    id of each dropped row. Both files are written atomically, the report last. The input can be `out` itself.
    Returns the report without the dropped rows, which may be most of a large file and are therefore kept on disk.
    """
    read, kinds = 0, Counter[str]()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as dropped:
        with replacing(out) as file:
            kept = _Lines(file)
            for row, problem in rows:
                read += 1
                reason = unreadable(problem.row) if isinstance(problem, RowError) else reject(problem)
                if reason is None:
                    kept.write(json_line(row.values))
                else:
                    kinds[str(reason["kind"])] += 1
                    problem_id = "" if isinstance(problem, RowError) else problem.id
                    dropped.write(json.dumps({"line": row.line, "id": problem_id, **reason}) + "\n")
        head: Json = {**about, "rows": read, "kept": kept.count, "dropped": read - kept.count}
        head |= {"kinds": dict(sorted(kinds.items())), "sha256": kept.digest}
        dropped.seek(0)
        write_data_report(out, head, dropped)
    return head


def unreadable(row: UnfitRow) -> Json:
    """Return why an unreadable row is dropped, for the report."""
    return {"kind": "unreadable", "gold": row.gold, "reason": row.reason}


def json_line(values: Json) -> str:
    """Return the JSON text with a newline. Half characters (lone surrogates), which are not valid Unicode, stay
    escaped."""
    line = json.dumps(values, ensure_ascii=False)
    return (json.dumps(values) if has_half_character(line) else line) + "\n"


def split_rows(
    rows: Iterable[tuple[Row, Problem]],
    is_heldout: Callable[[Problem], bool],
    out: Path,
    heldout: Path,
    *,
    about: Json,
) -> tuple[int, int]:
    """Write each row to `heldout` or to `out`, and a report next to each. Returns the number of rows in (out, heldout).

    All files are written atomically.
    """
    with replacing(out) as kept_file, replacing(heldout) as heldout_file:
        sides = _Lines(kept_file), _Lines(heldout_file)
        for row, problem in rows:
            sides[is_heldout(problem)].write(json_line(row.values))
    read = sum(side.count for side in sides)
    for path, side in zip((out, heldout), sides, strict=True):
        write_data_report(path, {**about, "rows": read, "kept": side.count, "sha256": side.digest})
    return sides[0].count, sides[1].count


class _Lines:
    """Writes lines to a file, and counts and hashes them."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._hash, self.count = file, hashlib.sha256(), 0

    def write(self, line: str) -> None:
        self._file.write(line)
        self._hash.update(line.encode())
        self.count += 1

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


BY = ("question", "id")


def held_out(problem: Problem, *, heldout_frac: float, seed: int = 0, by: str = "question") -> bool:
    """Return whether the problem is held out.

    heldout_frac: expected fraction of the problems that are held out, between 0 and 1 (exclusive). A problem that is
    held out at one fraction is held out at every larger one. by: "question" (questions that are equal except for
    typesetting fall on the same side) or "id". Raise ConfigError for a setting outside its range.
    """
    if not 0 < heldout_frac < 1:
        raise ConfigError(f"heldout_frac = {heldout_frac}, expected a number above 0 and below 1.")
    if by not in BY:
        raise ConfigError(f"by = {by!r}, expected {' or '.join(map(repr, BY))}.")
    key = problem.id if by == "id" else split_key(problem.question)
    return hash64(f"{seed}/{key}") < heldout_frac * 2**64


FIELD = "pass_rate"


def write_pass_rates(
    rows: Iterable[tuple[Row, Problem]],
    correct: Mapping[str, int],
    out: Path,
    *,
    k: int,
    low: float = 0.0,
    high: float = 1.0,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write each row with its pass rate, correct[id] / k, in the field `pass_rate`. Rows outside [low, high] are
    dropped.

    The report next to `out` counts the problems with 0, 1, ... k correct responses. Both files are written atomically.
    Return the report. Raise ConfigError unless 0 <= low <= high <= 1.
    """
    check_range(low, high)
    histogram = Counter[int]()
    with replacing(out) as file:
        kept = _Lines(file)
        for row, problem in rows:
            histogram[correct[problem.id]] += 1
            rate = correct[problem.id] / k
            if low <= rate <= high:
                kept.write(json_line({**row.values, FIELD: rate}))
    counts = {"rows": histogram.total(), "kept": kept.count, "dropped": histogram.total() - kept.count}
    report: dict[str, Any] = {**about, **counts, "sha256": kept.digest}
    report["correct_of_k"] = {str(count): histogram[count] for count in range(k + 1) if histogram[count]}
    write_data_report(out, report)
    return report


def check_range(low: float, high: float) -> None:
    if not 0 <= low <= high <= 1:
        raise ConfigError(f"--min-rate {low} and --max-rate {high}: expected 0 <= min <= max <= 1.")
