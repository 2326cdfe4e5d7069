"""The figures of a page: differences with their interval, curves with bands, a heat map. SVG text for files."""

from __future__ import annotations

import html
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from ansatz.findings.sweep_file import last_part
from ansatz.findings.verdicts import Result, Rows
from ansatz.track.svg import Chart, Series, figure, round_ticks
from ansatz.track.sweep_rows import at_shared_steps
from ansatz.track.theme import SERIES_COLOURS, SVG_STYLE

_WIDTH, _PANEL, _LEFT = 560, 84, 24


def draw_differences(results: Sequence[Result], units: Sequence[tuple[float, str]]) -> str:
    """Draw a panel for each rule: a dot for each block, a line for the interval, and dotted lines at 0 and at delta.

    units: for each rule, the factor of its numbers and their unit.
    """
    parts: list[str] = []
    for row, (result, (scale, unit)) in enumerate(zip(results, units, strict=True)):
        top, interval = 52 + row * _PANEL, result.interval
        delta = result.rule.delta * scale
        limits = (
            [-delta, delta]
            if result.rule.direction == "equal"
            else [-delta if result.rule.direction == "less" else delta]
        )
        values = [value * scale for value in result.values.values()]
        ends = [] if interval is None else [interval.low * scale, interval.high * scale]
        dots = [] if result.rule.ratio_of_variances else values
        shown = [0.0, *limits, *dots, *ends]
        ticks = round_ticks(min(shown), max(shown), count=7)

        def x(value: float, ticks: list[float] = ticks) -> float:
            return _LEFT + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (_WIDTH - 2 * _LEFT)

        parts.append(f'<text x="{_LEFT}" y="{top}">{html.escape(result.rule.name or result.title)} ({unit})</text>')
        for tick in ticks:
            parts.append(_line("grid", x(tick), top + 10, x(tick), top + 44))
            parts.append(f'<text class="tick middle" x="{x(tick):.1f}" y="{top + 58}">{tick:g}</text>')
        parts.append(_line("divider", x(0), top + 8, x(0), top + 46))
        parts += [_line("mark", x(limit), top + 8, x(limit), top + 46) for limit in limits]
        if interval is not None:
            parts.append(_line("line s0", x(ends[0]), top + 20, x(ends[1]), top + 20))
            parts.append(f'<circle class="dot s0" cx="{x(interval.value * scale):.1f}" cy="{top + 20}" r="4.5"/>')
        parts += [f'<circle class="dot s1" cx="{x(value):.1f}" cy="{top + 35}" r="3.2"/>' for value in dots]
    return _svg("Differences by block, their mean and its interval", parts, 36 + _PANEL * len(results))


def curves_of(rows: Rows, name: str) -> dict[str, dict[int, list[tuple[float, float]]]]:
    """Return the curve of each arm and block: {arm: {block: [(step, value), ...]}}."""
    found: defaultdict[str, dict[int, list[tuple[float, float]]]] = defaultdict(dict)
    for arm in rows.sweep.all_arms:
        for block, row in rows.rows_of(arm).items():
            if row["curves"].get(name):
                found[arm][block] = [(x, y) for x, y in row["curves"][name]]
    return dict(found)


def draw_curves(rows: Rows, name: str, *, is_fraction: bool) -> str | None:
    """Draw the mean of each arm over the blocks, with the range as a band; None without a curve."""
    series: list[Series] = []
    for arm, by_block in curves_of(rows, name).items():
        at = at_shared_steps([*by_block.values()])
        series.append(
            Series(
                name=arm,
                points=[(step, fmean(values)) for step, values in at.items()],
                band=[(step, min(values), max(values)) for step, values in at.items()],
                colour=len(series) % SERIES_COLOURS,
            )
        )
    if not any(each.points for each in series):
        return None
    return figure(Chart(title=f"{name}: mean and range of blocks", series=series, is_fraction=is_fraction))


def variance_ratios(rows: Rows, name: str, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, float]]:
    """Return (step, variance of the first pair's difference over that of the second's) over the blocks, where both
    vary."""
    curves, columns = curves_of(rows, name), list[dict[float, list[float]]]()
    for a, b in pairs:
        by_step: dict[float, list[float]] = {}
        for block in curves.get(a, {}).keys() & curves.get(b, {}).keys():
            other = dict(curves[b][block])
            for step, value in curves[a][block]:
                if step in other:
                    by_step.setdefault(step, []).append(value - other[step])
        columns.append(by_step)
    spreads = {
        step: (stdev(columns[0][step]), stdev(columns[1][step]))
        for step in sorted(columns[0].keys() & columns[1].keys())
        if min(len(columns[0][step]), len(columns[1][step])) > 2
    }
    return [(step, (first / second) ** 2) for step, (first, second) in spreads.items() if first > 0 and second > 0]


def draw_ratios(curves: Mapping[str, Sequence[tuple[float, float]]]) -> str | None:
    """Draw the log2 of ratios of variances by step; None without a point."""
    series = [
        Series(name=name, points=[(step, math.log2(ratio)) for step, ratio in points], dots=True)
        for name, points in curves.items()
        if points
    ]
    title = "log2 of the ratio of variances, by step"
    return figure(Chart(title=title, series=series)) if series else None


def draw_heat(rows: Rows, keys: tuple[str, str], label: str, scale: float) -> str:
    """Draw a heat map of the mean outcome: the first key to the right, the second downwards. Arms with cells that have
    collapsed or failed say so, and missing ones are empty."""
    grid, sweep = rows.sweep.grid, rows.sweep
    across, down = grid[keys[0]], grid[keys[1]]
    means: dict[tuple[int, int], tuple[float | None, str]] = {}
    for row, second in enumerate(down):
        for column, first in enumerate(across):
            arms = sweep.matching({keys[0]: first, keys[1]: second})
            cells = [each for block in rows.blocks for arm in arms if (each := rows.row(block, arm))]
            values = [v for each in cells if (v := each["outcomes"].get(label)) is not None]
            bad = sum(each["status"] != "done" for each in cells)
            note = f"{bad} of {len(cells)} ended early" if bad else f"n = {len(values)}"
            means[row, column] = (fmean(values) if values else None, note)
    known = [value for value, _ in means.values() if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    width, height, left, top = (_WIDTH - 130) / len(across), 44, 110, 48
    parts: list[str] = []
    for (row, column), (value, note) in means.items():
        x, y = left + column * width, top + row * height
        opacity = 0.0 if value is None else 0.1 + 0.6 * (value - low) / ((high - low) or 1)
        parts.append(
            f'<rect class="dot s0" x="{x:.1f}" y="{y}" width="{width - 2:.1f}" height="{height - 2}" '
            f'fill-opacity="{opacity:.2f}"/>'
        )
        text = "" if value is None else f"{value * scale:.3g}"
        parts.append(f'<text class="middle" x="{x + width / 2:.1f}" y="{y + 20}">{text}</text>')
        parts.append(f'<text class="tick middle" x="{x + width / 2:.1f}" y="{y + 36}">{note if value else ""}</text>')
    for column, first in enumerate(across):
        parts.append(f'<text class="tick middle" x="{left + (column + 0.5) * width:.1f}" y="{top - 8}">{first}</text>')
    for row, second in enumerate(down):
        parts.append(f'<text class="tick end" x="{left - 8}" y="{top + row * height + 26}">{second}</text>')
    bottom = top + len(down) * height
    caption = f"{last_part(keys[0])} to the right, {last_part(keys[1])} downwards"
    parts.append(f'<text class="tick middle" x="{_WIDTH / 2}" y="{bottom + 18}">{html.escape(caption)}</text>')
    return _svg(f"Mean {label}", parts, bottom + 30)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _svg(title: str, parts: Sequence[str], height: int) -> str:
    heading = f'<text class="heading" x="16" y="22">{html.escape(title)}</text>'
    frame = f'<rect class="surface" width="{_WIDTH}" height="{height}" rx="8"/>'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {_WIDTH} {height}" role="img"'
    label = html.escape(title, quote=True)
    return f'{start} aria-label="{label}"><style>{SVG_STYLE}</style>{frame}{heading}{"".join(parts)}</svg>\n'
