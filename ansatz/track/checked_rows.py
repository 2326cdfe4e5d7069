"""Rows of a run folder, checked before they are shown: another program or a damaged disk may have changed them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field, TypeAdapter, ValidationError, create_model

from ansatz.errors import DataError
from ansatz.track.jsonl import Row, read_jsonl

LARGEST_STEP = 10**12
_Step = Annotated[int, Field(strict=True, ge=0, lt=LARGEST_STEP)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_PART: dict[str, Any] = {  # the type of a field, and ... if every row has the field
    **dict.fromkeys(("pass@1", "greedy"), (_Number | None, ...)),
    **dict.fromkeys(("k", "num_problems", "samples_per_prompt", "seed"), (_Step, None)),
    **dict.fromkeys(("temperature", "top_p", "pass@k", "maj@k", "mean_length"), (_Number | None, None)),
    **dict.fromkeys(("truncated_frac", "exact_pass@1", "reward"), (_Number | None, None)),
    **dict.fromkeys(("pass@1_interval", "reward_interval"), (tuple[_Number, _Number] | None, None)),
    "rewards": (dict[str, _Number], None),
}


def rows_with(**fields: Any) -> TypeAdapter[Any]:
    """Return the check of rows that have these fields, among others. fields: type and default, or ... without one."""
    return TypeAdapter(create_model("Row", **fields))


_STEP_ROW = rows_with(step=(_Step, ...))
_METRICS_ROW = rows_with(step=(_Step, ...), seconds=(_Number, ...))
_EVENT_ROW = rows_with(step=(_Step, ...), kind=(str, ...), text=(str, ...))
_NUMBERS = TypeAdapter(dict[str, _Number])
_EVALUATION: dict[str, Any] = {
    **_PART,
    **dict.fromkeys(("pass@k", "maj@k"), (_Number | None, ...)),
    **dict.fromkeys(("mean_length", "truncated_frac"), (_Number, ...)),
    **dict.fromkeys(("by_level", "by_source"), (dict[str, create_model("Part", **_PART)], None)),
    "stage": (str, ...),
    "step": (_Step, ...),
    "split": (str, ...),
    "best_by": (str, None),
}
_EVALUATION_ROW = rows_with(**_EVALUATION)


def read_metrics(path: Path) -> list[Row]:
    """Return the rows of a metrics.jsonl, checked by `metrics_rows`."""
    return metrics_rows(read_jsonl(path), path)


def read_evaluations(path: Path) -> list[Row]:
    """Return the rows of an evaluations.jsonl, checked by `evaluation_rows`."""
    return evaluation_rows(read_jsonl(path), path)


def read_steps(path: Path) -> list[Row]:
    """Return the rows of any file. Raise DataError unless each has a step."""
    return _read(_STEP_ROW, path)


def read_events(path: Path) -> list[Row]:
    """Return the rows of an events.jsonl. Raise DataError unless each has a step, a kind and a text."""
    return _read(_EVENT_ROW, path)


def metrics_rows(rows: list[Row], path: Path) -> list[Row]:
    """Return the rows of metrics.jsonl. Raise DataError unless each is a step with finite numbers, and the steps
    rise."""
    for number, row in enumerate(rows, start=1):
        check_row(_METRICS_ROW, row, f"{path}, line {number}")
        check_row(_NUMBERS, row, f"{path}, line {number}")
    for number, (before, row) in enumerate(pairwise(rows), start=2):
        if row["step"] <= before["step"]:
            raise DataError(
                f"{path}, line {number}: step {row['step']} comes after step {before['step']}, but every step has one "
                "row, in rising order. Restore the file, or remove the row."
            )
    return rows


def evaluation_rows(rows: Any, path: Path) -> list[Row]:
    """Return the rows of evaluations.jsonl, or of a summary. Raise DataError unless each is an evaluation."""
    if not isinstance(rows, list):
        raise DataError(f"{path}: evaluations is {rows!r:.60}, expected a list. Restore the file.")
    for number, row in enumerate(cast("list[Row]", rows), start=1):
        check_row(_EVALUATION_ROW, row, f"{path}, evaluation {number}")
        if row.get("best_by", "") not in ("", *row.get("by_source", {})):
            raise _wrong(f"{path}, evaluation {number}", "best_by", row["best_by"])
    return cast("list[Row]", rows)


def _read(kind: TypeAdapter[Any], path: Path) -> list[Row]:
    rows = read_jsonl(path)
    for number, row in enumerate(rows, start=1):
        check_row(kind, row, f"{path}, line {number}")
    return rows


def check_row(kind: TypeAdapter[Any], row: Row, place: str) -> None:
    """Raise DataError, which begins with the place, for a row that is not of this kind."""
    try:
        kind.validate_python(row)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        value = "missing" if first["type"] == "missing" else first["input"]
        raise _wrong(place, ".".join(map(str, first["loc"])) or "the row", value) from None


def _wrong(place: str, key: str, value: Any) -> DataError:
    return DataError(
        f"{place}: {key[:40]!r} is {value!r:.60}, which no run writes. Restore the file, or remove the row."
    )
