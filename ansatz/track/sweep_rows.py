"""The rows of a sweep as pages read them, and the interval of a mean over its blocks. `ansatz.findings` writes them."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from ansatz.errors import DataError
from ansatz.links import open_file
from ansatz.track.jsonl import Row, read_jsonl

LEVEL = 0.95
DIGITS = 1e-6
"""Rows keep six digits of an outcome."""
NO_DIFFERENCE = "no difference beyond rounding"
FOLDER = Path("runs/sweeps")
"""Where `ansatz sweep` writes runs and rows by default."""


class Verdict(BaseModel):
    """The result of a rule. measured: the value with the ends of its interval."""

    rule: str
    outcome: str
    verdict: str
    measured: Annotated[list[FiniteFloat], Field(min_length=3, max_length=3)] | None
    blocks: int
    failed_guards: list[str]


class Header(BaseModel):
    """The first row, which registers a sweep; for its keys see `ansatz.findings.rows`."""

    file: str = ""
    registered: dict[str, str] = {}
    control: str = ""
    tuning: list[int] = []
    verdicts: list[Verdict] = []


class CellRow(BaseModel):
    """The fields of any other row that pages read."""

    block: int
    arm: str
    times: FiniteFloat
    status: str
    outcomes: dict[str, FiniteFloat | None]
    guards: dict[str, FiniteFloat | None]
    curves: dict[str, list[Annotated[list[FiniteFloat], Field(min_length=2, max_length=2)]]]


def at_shared_steps(curves: Iterable[Iterable[Sequence[float]]]) -> dict[float, list[float]]:
    """Return the values of several curves at every step of any of them between the first and the last that all have.
    Between two of its own points, a curve is a straight line.

    Example: `at_shared_steps([[(1, 0.0), (3, 2.0)], [(1, 5.0), (2, 5.0), (3, 5.0)]])[2]` is `[1.0, 5.0]`.
    """
    sorted_ones = [sorted((x, y) for x, y in points) for points in curves]
    if not sorted_ones:
        return {}
    first, last = max(points[0][0] for points in sorted_ones), min(points[-1][0] for points in sorted_ones)
    steps = sorted({x for points in sorted_ones for x, _ in points if first <= x <= last})
    return {x: [_value_at(x, points) for points in sorted_ones] for x in steps}


def _value_at(x: float, points: Sequence[tuple[float, float]]) -> float:
    place = bisect_left(points, (x, -math.inf))
    after = points[place]
    if after[0] == x:
        return after[1]
    before = points[place - 1]
    return before[1] + (after[1] - before[1]) * (x - before[0]) / (after[0] - before[0])


def holds_rows(path: Path) -> bool:
    """Tell whether a file has the rows of a sweep, by its beginning."""
    with suppress(OSError), open_file(path) as file:
        return file.read(10) == b'{"sweep": '
    return False


def find_rows(sweep: Path) -> Path | None:
    """Return the file of rows of a sweep, given as this file or by its name in FOLDER; None if there is none."""
    files = (sweep, FOLDER / f"{sweep}.jsonl")
    return next((path for path in files if path.is_file() and holds_rows(path)), None)


def read_rows(path: Path) -> tuple[Row, list[Row]]:
    """Return the first row, empty if there is none, and the rows of the cells. Raise DataError for another row."""
    header, *rows = read_jsonl(path) or [{}]
    for number, row in enumerate([header, *rows], start=1):
        try:
            (Header if number == 1 else CellRow).model_validate(row, strict=True)
        except ValidationError as error:
            wrong = error.errors()[0]
            place = ".".join(map(str, wrong["loc"]))
            raise DataError(f"{path}, line {number}: {place!r} is {wrong['input']!r:.60}. Restore the file.") from error
    return header, rows


def begin_of_run(arm: str, times: float) -> str:
    """Return how the folder of a cell's run begins; a digest follows."""
    tuned = "" if times == 1 else f", x {times:g}"
    return re.sub(r"[^A-Za-z0-9.]+", "-", f"{arm or 'start'}{tuned}").strip("-")


def mean_and_margin(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and half of its t interval at LEVEL; None for fewer than two values."""
    if len(values) < 2:
        return fmean(values), None
    return fmean(values), t_quantile(LEVEL, len(values) - 1) * stdev(values) / math.sqrt(len(values))


def is_rounding(differences: Iterable[float], values: Iterable[float]) -> bool:
    """Tell whether no difference between these values is larger than the digits that rows keep, or than 1e-9."""
    return max(map(abs, differences), default=0.0) <= max(1e-9, DIGITS * max(map(abs, values), default=0.0))


def t_tail(t: float, degrees: int) -> float:
    """Return the probability that |T| is at most |t| (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(abs(t) / math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = degrees % 2
    term, total = (cosine, cosine) if odd else (1.0, 1.0)
    for k in range(2 + odd, degrees - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    if odd:
        return 2 / math.pi * (angle + (sine * total if degrees > 1 else 0.0))
    return sine * total


def t_quantile(level: float, degrees: int) -> float:
    """Return t with P(|T| <= t) = level, by bisection."""
    low, high = 0.0, 1.0
    while t_tail(high, degrees) < level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, degrees) < level else (low, middle)
    return (low + high) / 2
