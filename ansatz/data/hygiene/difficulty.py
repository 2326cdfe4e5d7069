"""How hard a problem is for a model: the share of its responses that are right, written to each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansatz.data.files import replacing
from ansatz.data.hygiene.report import digest, write_report
from ansatz.data.hygiene.row_filter import to_line
from ansatz.data.rows import Row
from ansatz.errors import ConfigError
from ansatz.types import Problem

FIELD = "pass_rate"


def write_pass_rates(
    rows: Iterable[tuple[Row, Problem]],
    right: Mapping[str, int],
    out: Path,
    *,
    k: int,
    low: float = 0.0,
    high: float = 1.0,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes each row with its pass rate, right[id] / k, in the field `pass_rate`; rows outside [low, high] go.

    The report beside `out` says how many problems had 0, 1, ... k right responses. Both files are written whole or not
    at all. Returns the report. ConfigError where low and high are no part of 0 to 1.
    """
    check_range(low, high)
    read, kept, histogram = 0, 0, Counter[int]()
    with replacing(out) as file:
        for row, problem in rows:
            read += 1
            histogram[right[problem.id]] += 1
            rate = right[problem.id] / k
            if low <= rate <= high:
                kept += 1
                file.write(to_line({**row.values, FIELD: rate}))
    report: dict[str, Any] = {**about, "rows": read, "kept": kept, "dropped": read - kept, "sha256": digest(out)}
    report["correct_of_k"] = {str(count): histogram[count] for count in range(k + 1) if histogram[count]}
    write_report(out, report)
    return report


def check_range(low: float, high: float) -> None:
    if not 0 <= low <= high <= 1:
        raise ConfigError(f"--min-rate {low} and --max-rate {high}: expected 0 <= min <= max <= 1.")
