"""Line charts as SVG text: axes with ticks, a legend, several series, bands, stage dividers; no dependency.

Colours are CSS variables (`track.theme`), so one drawing serves light and dark. Points travel along in the attribute
data-chart, which the report's script reads to show values under the pointer.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ansatz.track.theme import SERIES_COLOURS, SVG_STYLE

Point = tuple[float, float]
Item = TypeVar("Item")

FONT = 12.0  # px of the drawing's own units
CHAR = 0.6 * FONT  # mean width of a character, for the legend's places
MAX_POINTS = 400  # a series; more cannot be told apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line. band: (x, low, high). labels: what the pointer shows for each point in place of its x."""

    name: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()
    labels: Sequence[str] = ()
    dashed: bool = False
    dots: bool = False
    smooth: bool = False
    """A bold running mean over a faint line of all points; for noisy curves of 30 points or more."""
    colour: int | None = None
    """Which colour of the palette; None: by place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """x_ticks: (x, label) in place of round numbers. dividers: (x, label), a line with a caption to its right."""

    title: str
    series: Sequence[Series]
    x_label: str = "step"
    share: bool = False
    """y is a share: the axis is 0 to 100 %."""
    x_ticks: Sequence[tuple[float, str]] | None = None
    dividers: Sequence[tuple[float, str]] = ()
    marks: Sequence[float] = field(default=())
    """Horizontal lines at the edge of the healthy range, drawn when they fall into the axis."""


def line_chart(chart: Chart, *, width: int = 440, height: int = 240, standalone: bool = False) -> str:
    """The chart as an <svg> element; standalone: with title, style and background, to be saved as a file.

    ValueError when no series has a point.
    """
    series = [one for one in chart.series if one.points]
    if not series:
        raise ValueError(f"chart {chart.title!r} has no points; expected at least one series with a point")
    box = _Box(chart, series, width, height, titled=standalone)
    parts = [box.legend(), box.axes()]
    parts += [_band(box, one, _colour(one, place)) for place, one in enumerate(series) if one.band]
    parts += [_line(box, one, _colour(one, place)) for place, one in enumerate(series)]
    label = f"{chart.title}: " + "; ".join(f"{one.name} ends at {box.y_text(one.points[-1][1])}" for one in series)
    namespace = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    frame = f'<style>{SVG_STYLE}</style><rect class="surface" width="{width}" height="{height}" rx="8"/>'
    title = f'<text class="heading" x="16" y="26">{html.escape(chart.title)}</text>'
    return (
        f'<svg{namespace} class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(label)}" '
        f'data-chart="{html.escape(box.data())}">{frame + title if standalone else ""}{"".join(parts)}</svg>'
    )


class _Box:
    """The plot's rectangle and its two scales."""

    def __init__(self, chart: Chart, series: Sequence[Series], width: int, height: int, *, titled: bool) -> None:
        self.chart, self.series = chart, series
        xs = [x for one in series for x, _ in one.points]
        ys = [y for one in series for _, y in one.points] + [y for one in series for _, *ends in one.band for y in ends]
        self.x_low, self.x_high = min(xs), max(xs)
        if self.x_low == self.x_high:
            self.x_low, self.x_high = self.x_low - 0.5, self.x_high + 0.5
        self.y_ticks = [0, 0.25, 0.5, 0.75, 1] if chart.share else round_ticks(*_y_span(ys), count=5)
        self.y_low, self.y_high = self.y_ticks[0], self.y_ticks[-1]
        self.left = 14 + CHAR * max(len(self.y_text(tick)) for tick in self.y_ticks)
        self.right = width - 14.0
        self._legend_top = 46.0 if titled else 10.0
        self._legend = self._legend_places()
        rows = self._legend[-1][2] + 1 if self._legend else 0
        self.top = self._legend_top + 18 * rows + (16 if chart.dividers else 4)
        self.bottom = height - (38.0 if chart.x_label else 24.0)
        self.height = height

    def x(self, value: float) -> float:
        return self.left + (value - self.x_low) / (self.x_high - self.x_low) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - (value - self.y_low) / (self.y_high - self.y_low) * (self.bottom - self.top)

    def y_text(self, value: float) -> str:
        return f"{100 * value:.0f} %" if self.chart.share else axis_number(value)

    def legend(self) -> str:
        out: list[str] = []
        for one, place, row, x in self._legend:
            y = self._legend_top + 18 * row
            colour = f"s{_colour(one, place)}"
            dash = ' stroke-dasharray="5 3"' if one.dashed else ""
            out.append(
                f'<line class="line {colour}" x1="{x:.1f}" x2="{x + 18:.1f}" y1="{y:.1f}" y2="{y:.1f}"{dash}/>'
                f'<text x="{x + 24:.1f}" y="{y + 4:.1f}">{html.escape(one.name)}</text>'
            )
        return "".join(out)

    def _legend_places(self) -> list[tuple[Series, int, int, float]]:
        """(series, place, row, x) of each entry, wrapped at the right edge; a single series needs no legend."""
        if len(self.series) < 2:
            return []
        places: list[tuple[Series, int, int, float]] = []
        row, x = 0, self.left
        for place, one in enumerate(self.series):
            size = 24 + CHAR * len(one.name) + 16
            if places and x + size > self.right:
                row, x = row + 1, self.left
            places.append((one, place, row, x))
            x += size
        return places

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
            out.append(
                f'<text class="tick {anchor}" x="{x:.1f}" y="{self.bottom + 16:.1f}">{html.escape(label)}</text>'
            )
        for x_value, label in self.chart.dividers:
            x = self.x(x_value)
            out.append(
                f'<line class="divider" x1="{x:.1f}" x2="{x:.1f}" y1="{self.top - 14:.1f}" y2="{self.bottom:.1f}"/>'
            )
            out.append(f'<text class="tick" x="{x + 5:.1f}" y="{self.top - 4:.1f}">{html.escape(label)}</text>')
        if self.chart.x_label:
            middle, caption = (self.left + self.right) / 2, html.escape(self.chart.x_label)
            out.append(f'<text class="tick middle" x="{middle:.1f}" y="{self.height - 6}">{caption}</text>')
        return "".join(out)

    def _x_ticks(self) -> Sequence[tuple[float, str]]:
        if self.chart.x_ticks is not None:
            return self.chart.x_ticks
        ticks = round_ticks(self.x_low, self.x_high, count=6)
        return [(tick, axis_number(tick)) for tick in ticks if self.x_low <= tick <= self.x_high]

    def data(self) -> str:
        """What the pointer needs: the plot's edges, and each series as [name, [[px, x text, y text], ...]]."""
        lines = []
        for one in self.series:
            labels = one.labels or [f"{self.chart.x_label} {axis_number(x)}".strip() for x, _ in one.points]
            kept = thin(list(zip(one.points, labels, strict=True)), value=lambda item: item[0][1])
            points = [[round(self.x(x), 1), text, self._exact(y)] for (x, y), text in kept]
            lines.append([one.name, points])
        return json.dumps(
            {"top": round(self.top, 1), "bottom": round(self.bottom, 1), "series": lines}, separators=(",", ":")
        )

    def _exact(self, value: float) -> str:
        return f"{100 * value:.1f} %" if self.chart.share else f"{value:.4g}"


def _line(box: _Box, one: Series, colour: int) -> str:
    points = thin(list(one.points), value=lambda point: point[1])
    dash = ' stroke-dasharray="5 3"' if one.dashed else ""
    out: list[str] = []
    smoothed = one.smooth and len(one.points) >= 30
    out.append(f'<path class="line s{colour}{" faint" if smoothed else ""}" d="{_path(box, points)}"{dash}/>')
    if smoothed:
        out.append(
            f'<path class="line s{colour}" d="{_path(box, thin(running_mean(one.points), value=lambda p: p[1]))}"/>'
        )
    if one.dots or len(points) == 1:
        out += [f'<circle class="dot s{colour}" cx="{box.x(x):.1f}" cy="{box.y(y):.1f}" r="3.2"/>' for x, y in points]
    return "".join(out)


def _band(box: _Box, one: Series, colour: int) -> str:
    edge = [(x, high) for x, _, high in one.band] + [(x, low) for x, low, _ in reversed(one.band)]
    return f'<path class="band s{colour}" d="{_path(box, edge)}Z"/>'


def _path(box: _Box, points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{box.x(x):.1f},{box.y(y):.1f}" for x, y in points)


def _colour(one: Series, place: int) -> int:
    return (place if one.colour is None else one.colour) % SERIES_COLOURS


def _y_span(ys: Sequence[float]) -> Point:
    """Zero belongs to the axis unless the values stay far from it, as an alignment of 1.0002 does."""
    low, high = min(ys), max(ys)
    if 0 <= low < 0.6 * high:
        low = 0.0
    largest = max(abs(low), abs(high))
    if largest < 1e-290:
        return 0.0, 1.0
    if high - low <= 1e-9 * largest:  # equal but for rounding; ticks between them would all be one number
        return min(1.25 * low, 0.0), max(1.25 * high, 0.0)
    return low, high


def round_ticks(low: float, high: float, *, count: int) -> list[float]:
    """About `count` round numbers, 1, 2 or 5 times a power of ten apart, from low or less to high or more."""
    raw = (high - low) / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def axis_number(value: float) -> str:
    """Short and without noise: 0.25, 1200, 1.5e-05."""
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.6g}"


def running_mean(points: Sequence[Point]) -> list[Point]:
    """Mean over a centred window of a tenth of the points (at least 5), narrower towards the ends to stay centred."""
    widest = max(2, len(points) // 20)
    out: list[Point] = []
    for index, (x, _) in enumerate(points):
        half = min(widest, index, len(points) - 1 - index)
        window = points[index - half : index + half + 1]
        out.append((x, sum(y for _, y in window) / len(window)))
    return out


def thin(items: Sequence[Item], *, value: Callable[[Item], float], most: int = MAX_POINTS) -> Sequence[Item]:
    """At most `most` items in order: the smallest and largest of each of most / 2 equal runs, so that spikes stay."""
    if len(items) <= most:
        return items
    runs = most // 2
    out: list[Item] = []
    for run in range(runs):
        start, stop = run * len(items) // runs, (run + 1) * len(items) // runs
        lowest = min(range(start, stop), key=lambda index: value(items[index]))
        highest = max(range(start, stop), key=lambda index: value(items[index]))
        out += [items[index] for index in sorted({lowest, highest})]
    return out
