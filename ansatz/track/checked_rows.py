"""Rows of a run folder, checked before they are shown: another program or a damaged disk may have changed them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from ansatz.errors import DataError
from ansatz.track.jsonl import Row

LARGEST_STEP = 10**12


def metrics_rows(rows: list[Row], path: Path) -> list[Row]:
    """Return the rows of metrics.jsonl. Raise DataError unless each is a step with finite numbers, and the steps
    rise."""
    for number, row in enumerate(rows, start=1):
        _check(row, {"step": _is_step, "seconds": _is_number}, f"{path}, line {number}")
        for key, value in row.items():
            if not _is_number(value):
                raise _wrong(f"{path}, line {number}", key, value)
    for number, (before, row) in enumerate(pairwise(rows), start=2):
        if row["step"] <= before["step"]:
            raise DataError(
                f"{path}, line {number}: step {row['step']} comes after step {before['step']}, but every step has one "
                "row, in rising order. Restore the file, or remove the row."
            )
    return rows


def step_rows(rows: list[Row], path: Path) -> list[Row]:
    """Return the rows of any file. Raise DataError unless each has a step."""
    for number, row in enumerate(rows, start=1):
        _check(row, {"step": _is_step}, f"{path}, line {number}")
    return rows


def event_rows(rows: list[Row], path: Path) -> list[Row]:
    """Return the rows of events.jsonl. Raise DataError unless each has a step, a kind and a text."""
    for number, row in enumerate(rows, start=1):
        _check(row, {"step": _is_step, "kind": _is_text, "text": _is_text}, f"{path}, line {number}")
    return rows


def evaluation_rows(rows: Any, path: Path) -> list[Row]:
    """Return the rows of evaluations.jsonl, or of a summary. Raise DataError unless each is an evaluation."""
    if not isinstance(rows, list):
        raise DataError(f"{path}: evaluations is {rows!r:.60}, expected a list. Restore the file.")
    for number, row in enumerate(cast("list[Any]", rows), start=1):
        place = f"{path}, evaluation {number}"
        if not isinstance(row, dict):
            raise DataError(f"{place}: got {row!r:.60}, expected an evaluation. Restore the file, or remove the row.")
        _check(cast("Row", row), _EVALUATION, place)
        _check_known(cast("Row", row), place)
        for kind in ("level", "source"):
            parts = cast("Row", row).get(f"by_{kind}", {})
            if not isinstance(parts, dict):
                raise _wrong(place, f"by_{kind}", parts)
            for name, part in cast("dict[str, Any]", parts).items():
                if not isinstance(part, dict):
                    raise _wrong(place, f"by_{kind}.{name}", part)
                _check(cast("Row", part), _LEVEL, f"{place}, {kind} {name!r:.40}")
                _check_known(cast("Row", part), f"{place}, {kind} {name!r:.40}")
        if row.get("best_by", "") not in ("", *row.get("by_source", {})):
            raise _wrong(place, "best_by", row["best_by"])
    return cast("list[Row]", rows)


def _check(row: Row, fields: Mapping[str, Callable[[Any], bool]], place: str) -> None:
    for key, is_right in fields.items():
        if key not in row or not is_right(row[key]):
            raise _wrong(place, key, row.get(key, "missing"))


def _check_known(row: Row, place: str) -> None:
    for key, is_right in _OPTIONAL.items():
        if key in row and not is_right(row[key]):
            raise _wrong(place, key, row[key])


def _wrong(place: str, key: str, value: Any) -> DataError:
    return DataError(
        f"{place}: {key[:40]!r} is {value!r:.60}, which no run writes. Restore the file, or remove the row."
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST_STEP


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_interval(value: Any) -> bool:
    return value is None or (
        isinstance(value, list)
        and len(cast("list[Any]", value)) == 2
        and all(map(_is_number, cast("list[Any]", value)))
    )


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, cast("dict[str, Any]", value).values()))


_LEVEL = {"pass@1": _is_number_or_none, "greedy": _is_number_or_none}
_EVALUATION = {
    "stage": _is_text,
    "step": _is_step,
    "split": _is_text,
    **_LEVEL,
    "pass@k": _is_number_or_none,
    "maj@k": _is_number_or_none,
    "mean_length": _is_number,
    "truncated_frac": _is_number,
}
_OPTIONAL = {
    **dict.fromkeys(("k", "num_problems", "samples_per_prompt", "seed"), _is_step),
    **dict.fromkeys(
        ("temperature", "top_p", "pass@k", "maj@k", "mean_length", "truncated_frac", "exact_pass@1", "reward"),
        _is_number_or_none,
    ),
    **dict.fromkeys(("pass@1_interval", "reward_interval"), _is_interval),
    "rewards": _are_numbers,
}
