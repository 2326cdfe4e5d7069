"""Writes to each row how hard its problem is for a model: the fraction of the responses that are correct."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansatz.data.files import replacing
from ansatz.data.hygiene.report import digest, write_data_report
from ansatz.data.hygiene.row_filter import json_line
from ansatz.data.rows import Row
from ansatz.errors import ConfigError
from ansatz.types import Problem

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
    read, kept, histogram = 0, 0, Counter[int]()
    with replacing(out) as file:
        for row, problem in rows:
            read += 1
            histogram[correct[problem.id]] += 1
            rate = correct[problem.id] / k
            if low <= rate <= high:
                kept += 1
                file.write(json_line({**row.values, FIELD: rate}))
    report: dict[str, Any] = {**about, "rows": read, "kept": kept, "dropped": read - kept, "sha256": digest(out)}
    report["correct_of_k"] = {str(count): histogram[count] for count in range(k + 1) if histogram[count]}
    write_data_report(out, report)
    return report


def check_range(low: float, high: float) -> None:
    if not 0 <= low <= high <= 1:
        raise ConfigError(f"--min-rate {low} and --max-rate {high}: expected 0 <= min <= max <= 1.")
