"""Line charts as SVG text, without a dependency: axes with ticks, a legend, several series, bands, stage dividers.

Colours are CSS variables (`track.theme`), so one drawing serves light and dark themes. The attribute data-chart holds
the points; the script of the report reads it to show values under the pointer.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TypeVar

from ansatz.track.theme import SERIES_COLOURS, SVG_STYLE
from ansatz.visible import visible

Point = tuple[float, float]
Item = TypeVar("Item")

FONT = 12.0  # px, in units of the drawing
CHAR = 0.6 * FONT  # mean width of a character, to lay out the legend
MAX_POINTS = 400  # per series; more cannot be distinguished
FIGURE_SIZE = (560, 300)  # px of a figure that is saved as a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line. name: empty for a line that is a part of another one, which has no entry of its own in the legend.
    band: (x, low, high). labels: texts that the pointer shows for each point instead of its x."""

    name: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()
    labels: Sequence[str] = ()
    dashed: bool = False
    dots: bool = False
    smooth: bool = False
    """A bold running mean over a faint line of all points, if there are 30 points or more."""
    colour: int | None = None
    """Index into the palette; None: the index of the series in its chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """x_ticks: (x, label) instead of round numbers. dividers: (x, label), a line with a caption to its right."""

    title: str
    series: Sequence[Series]
    x_label: str = "step"
    is_fraction: bool = False
    """y is a fraction: the axis is in per cent, and goes from 0 to 100 without y_range."""
    y_range: Point | None = None
    """The range that the axis of y must show. None: all points, and 0 unless they are far from it."""
    x_ticks: Sequence[tuple[float, str]] | None = None
    dividers: Sequence[tuple[float, str]] = ()
    marks: Sequence[float] = field(default=())
    """Horizontal lines at the edges of the healthy range, drawn if they are within the axis."""


def figure(chart: Chart) -> str:
    """Return the chart as the text of a file of its own, in the one size of all figures of the documentation."""
    width, height = FIGURE_SIZE
    return line_chart(chart, width=width, height=height, standalone=True) + "\n"


def line_chart(chart: Chart, *, width: int = 440, height: int = 240, standalone: bool = False) -> str:
    """Return the chart as an <svg> element. standalone: with title, style and background, to be saved as a file.

    Raise ValueError if no series has a point.
    """
    drawn = [series for series in chart.series if series.points]
    if not drawn:
        raise ValueError(f"the chart {chart.title!r} has no points; expected at least one series with a point.")
    box = _Box(chart, drawn, width, height, titled=standalone)
    parts = [box.legend(), box.axes()]
    parts += [_band(box, series, _colour(series, index)) for index, series in enumerate(drawn) if series.band]
    parts += [_line(box, series, _colour(series, index)) for index, series in enumerate(drawn)]
    ends = "; ".join(f"{series.name} ends at {box.y_text(series.points[-1][1])}" for series in drawn if series.name)
    label = f"{chart.title}: {ends}"
    namespace = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    frame = f'<style>{SVG_STYLE}</style><rect class="surface" width="{width}" height="{height}" rx="8"/>'
    title = f'<text class="heading" x="16" y="26">{_text(chart.title)}</text>'
    return (
        f'<svg{namespace} class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{_text(label)}" '
        f'data-chart="{_text(box.data())}">{frame + title if standalone else ""}{"".join(parts)}</svg>'
    )


def _text(value: str) -> str:
    return html.escape(visible(value))


class _Box:
    """The rectangle of the plot and its two scales."""

    def __init__(self, chart: Chart, series: Sequence[Series], width: int, height: int, *, titled: bool) -> None:
        self.chart, self.series = chart, series
        xs = [x for each in series for x, _ in each.points] + [x for x, _ in chart.dividers]
        ys = [y for each in series for _, y in each.points]
        ys += [y for each in series for _, *ends in each.band for y in ends]
        self.x_low, self.x_high = min(xs), max(xs)
        if self.x_low == self.x_high:
            self.x_low, self.x_high = self.x_low - 0.5, self.x_high + 0.5
        if chart.y_range is None and chart.is_fraction:
            self.y_ticks = [0, 0.25, 0.5, 0.75, 1]
        else:
            self.y_ticks = round_ticks(*(chart.y_range or _y_span(ys)), count=5)
        self.y_low, self.y_high = self.y_ticks[0], self.y_ticks[-1]
        self.left = 14 + CHAR * max(len(self.y_text(tick)) for tick in self.y_ticks)
        self.right = width - 14.0
        self._legend_top = 46.0 if titled else 10.0
        self._legend = self._legend_entries()
        rows = self._legend[-1][2] + 1 if self._legend else 0
        self.top = self._legend_top + 18 * rows + (16 if chart.dividers else 4)
        self.bottom = height - (38.0 if chart.x_label else 24.0)
        self.height = height

    def x(self, value: float) -> float:
        return self.left + (value - self.x_low) / (self.x_high - self.x_low) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - (value - self.y_low) / (self.y_high - self.y_low) * (self.bottom - self.top)

    def y_text(self, value: float) -> str:
        return f"{100 * value:.0f} %" if self.chart.is_fraction else axis_number(value)

    def legend(self) -> str:
        out: list[str] = []
        for series, index, row, x in self._legend:
            y = self._legend_top + 18 * row
            colour = f"s{_colour(series, index)}"
            dash = ' stroke-dasharray="5 3"' if series.dashed else ""
            out.append(
                f'<line class="line {colour}" x1="{x:.1f}" x2="{x + 18:.1f}" y1="{y:.1f}" y2="{y:.1f}"{dash}/>'
                f'<text x="{x + 24:.1f}" y="{y + 4:.1f}">{_text(series.name)}</text>'
            )
        return "".join(out)

    def _legend_entries(self) -> list[tuple[Series, int, int, float]]:
        """Return (series, index, row, x) of each entry, wrapped at the right edge. A single series needs no legend."""
        if len(self.series) < 2:
            return []
        entries: list[tuple[Series, int, int, float]] = []
        row, x = 0, self.left
        for index, series in enumerate(self.series):
            if not series.name:
                continue
            width = 24 + CHAR * len(series.name) + 16
            if entries and x + width > self.right:
                row, x = row + 1, self.left
            entries.append((series, index, row, x))
            x += width
        return entries

    def axes(self) -> str:
        out: list[str] = []
        for tick in self.y_ticks:
            y = self.y(tick)
            out.append(f'<line class="grid" x1="{self.left:.1f}" x2="{self.right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
            out.append(f'<text class="tick end" x="{self.left - 6:.1f}" y="{y + 4:.1f}">{self.y_text(tick)}</text>')
        for value in self.chart.marks:
            if self.y_low < value < self.y_high:
                y = self.y(value)
                out.append(f'<line class="mark" x1="{self.left:.1f}" x2="{self.right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        for x_value, label in self._x_ticks():
            x = self.x(x_value)
            anchor = "end" if x > self.right - 12 else "start" if x < self.left + 4 else "middle"
            out.append(f'<text class="tick {anchor}" x="{x:.1f}" y="{self.bottom + 16:.1f}">{_text(label)}</text>')
        for x_value, label in self.chart.dividers:
            x = self.x(x_value)
            out.append(
                f'<line class="divider" x1="{x:.1f}" x2="{x:.1f}" y1="{self.top - 14:.1f}" y2="{self.bottom:.1f}"/>'
            )
            out.append(f'<text class="tick" x="{x + 5:.1f}" y="{self.top - 4:.1f}">{_text(label)}</text>')
        if self.chart.x_label:
            middle, caption = (self.left + self.right) / 2, _text(self.chart.x_label)
            out.append(f'<text class="tick middle" x="{middle:.1f}" y="{self.height - 6}">{caption}</text>')
        return "".join(out)

    def _x_ticks(self) -> Sequence[tuple[float, str]]:
        if self.chart.x_ticks is not None:
            return self.chart.x_ticks
        ticks = round_ticks(self.x_low, self.x_high, count=6)
        return [(tick, axis_number(tick)) for tick in ticks if self.x_low <= tick <= self.x_high]

    def data(self) -> str:
        """Return the data for the pointer: the edges of the plot, and each series as [name, [[px, x text, y text],
        ...]]."""
        lines = []
        for series in self.series:
            labels = series.labels or [f"{self.chart.x_label} {axis_number(x)}".strip() for x, _ in series.points]
            kept = thin(list(zip(series.points, labels, strict=True)), value=lambda item: item[0][1])
            scale, exact = (100, "{:.1f} %") if self.chart.is_fraction else (1, "{:.4g}")
            points = [[round(self.x(x), 1), text, exact.format(scale * y)] for (x, y), text in kept]
            lines.append([series.name, points])
        return json.dumps(
            {"top": round(self.top, 1), "bottom": round(self.bottom, 1), "series": lines}, separators=(",", ":")
        )


def _line(box: _Box, series: Series, colour: int) -> str:
    points = thin(list(series.points), value=lambda point: point[1])
    dash = ' stroke-dasharray="5 3"' if series.dashed else ""
    out: list[str] = []
    smoothed = series.smooth and len(series.points) >= 30
    faint, longest = " faint" if smoothed else "", _find_longest_gap(points)
    out.append(f'<path class="line s{colour}{faint}" d="{_path(box, points, longest=longest)}"{dash}/>')
    if smoothed:
        mean = thin(running_mean(series.points), value=lambda point: point[1])
        out.append(f'<path class="line s{colour}" d="{_path(box, mean, longest=longest)}"/>')
    if series.dots or len(points) == 1:
        out += [f'<circle class="dot s{colour}" cx="{box.x(x):.1f}" cy="{box.y(y):.1f}" r="3.2"/>' for x, y in points]
    return "".join(out)


def _band(box: _Box, series: Series, colour: int) -> str:
    edge = [(x, high) for x, _, high in series.band] + [(x, low) for x, low, _ in reversed(series.band)]
    return f'<path class="band s{colour}" d="{_path(box, edge)}Z"/>'


def _path(box: _Box, points: Sequence[Point], *, longest: float = math.inf) -> str:
    """Return the path through the points. longest: no line is drawn over a larger distance in x."""
    out, before = "", -math.inf
    for x, y in points:
        out += f"{'M' if not out or x - before > longest else 'L'}{box.x(x):.1f},{box.y(y):.1f}"
        before = x
    return out


def _find_longest_gap(points: Sequence[Point]) -> float:
    """Return the distance in x that a line may bridge between two points: ten times the usual one. Over a larger
    distance, nothing is known between them."""
    gaps = [after - before for (before, _), (after, _) in pairwise(points)]
    return 10 * median(gaps) if len(gaps) > 2 else math.inf


def _colour(series: Series, index: int) -> int:
    return (index if series.colour is None else series.colour) % SERIES_COLOURS


def _y_span(ys: Sequence[float]) -> Point:
    """Return the ends of the axis. It includes 0 unless all values are far from it, like sampler-trainer gaps around
    1.0002."""
    low, high = min(ys), max(ys)
    if 0 <= low < 0.6 * high:
        low = 0.0
    largest = max(abs(low), abs(high))
    if largest < 1e-290:
        return 0.0, 1.0
    if high - low <= 1e-9 * largest:  # equal except for rounding: all ticks would be the same number
        return min(1.25 * low, 0.0), max(1.25 * high, 0.0)
    return low, high


def round_ticks(low: float, high: float, *, count: int) -> list[float]:
    """Return about `count` round numbers that are 1, 2 or 5 times a power of ten apart and enclose low and high."""
    raw = (high - low) / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def axis_number(value: float) -> str:
    """Write a number short and without noise: 0.25, 1200, 1.5e-05."""
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.6g}"


_SMALLEST_BITS = 1074  # the smallest float above 0 is 2**-1074


def running_mean(points: Sequence[Point]) -> list[Point]:
    """Return the mean over a centred window of a tenth of the points (at least 5), which is narrower near the ends.

    Sums up to each point make the time linear. They are whole multiples of the smallest float, and so exact: without
    this, one very large value would spoil every mean after it.
    """
    widest = max(2, len(points) // 20)
    sums = [0]
    for _, y in points:
        numerator, denominator = float(y).as_integer_ratio()
        sums.append(sums[-1] + (numerator << _SMALLEST_BITS) // denominator)
    out: list[Point] = []
    for index, (x, _) in enumerate(points):
        half = min(widest, index, len(points) - 1 - index)
        total = sums[index + half + 1] - sums[index - half]
        out.append((x, total / ((2 * half + 1) << _SMALLEST_BITS)))
    return out


def thin(items: Sequence[Item], *, value: Callable[[Item], float]) -> Sequence[Item]:
    """Return at most MAX_POINTS items in order: the smallest and the largest of equal parts, so that spikes stay."""
    if len(items) <= MAX_POINTS:
        return items
    parts = MAX_POINTS // 2
    out: list[Item] = []
    for part in range(parts):
        start, stop = part * len(items) // parts, (part + 1) * len(items) // parts
        lowest = min(range(start, stop), key=lambda index: value(items[index]))
        highest = max(range(start, stop), key=lambda index: value(items[index]))
        out += [items[index] for index in sorted({lowest, highest})]
    return out
