"""Which charts are drawn of a run: the learning curve on held-out problems, and the curves of each stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ansatz.files import read_yaml
from ansatz.track.base import parts_of
from ansatz.track.jsonl import Row
from ansatz.track.metrics import find_metric
from ansatz.track.runs import PipelineRun, StageRun
from ansatz.track.svg import Chart, Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart of a stage. metrics: (name, legend). explain: the metric whose row of the table is shown below it."""

    title: str
    metrics: Sequence[Sequence[str]]
    is_fraction: bool = False
    smooth: bool = True

    @property
    def explain(self) -> str:
        return self.metrics[0][0]


PANELS = tuple(Panel(**row) for row in read_yaml(Path(__file__).with_name("panels.yaml")))
"""In the order of the report. A metric that none of them shows gets its own chart under "All other curves"."""


class Drawn(NamedTuple):
    """A chart, the healthy range of its first metric, and the meaning of a change of it."""

    chart: Chart
    healthy: str
    meaning: str


def stage_charts(stage: StageRun) -> tuple[list[Drawn], list[Drawn]]:
    """Return (the panels that show a metric of the stage, one chart for each metric that none of them shows)."""
    names = stage.metric_names()
    main = [panel for panel in PANELS if any(name in names for name, _ in panel.metrics)]
    shown = {name for panel in main for name, _ in panel.metrics}
    others = [Panel(title=name, metrics=((name, name),)) for name in names if name not in shown]
    return [panel_chart(stage, panel) for panel in main], [panel_chart(stage, panel) for panel in others]


def panel_chart(stage: StageRun, panel: Panel) -> Drawn:
    """Return the chart of a panel. Lines that coincide are drawn once, with both names. A line has the same colour
    whichever others are present."""
    series: list[Series] = []
    for index, (name, legend) in enumerate(panel.metrics):
        points = stage.curve(name)
        twin = next((number for number, drawn in enumerate(series) if drawn.points == points), None)
        if points and twin is None:
            series.append(Series(name=legend, points=points, smooth=panel.smooth, colour=index))
        elif points and twin is not None:
            series[twin] = replace(series[twin], name=f"{series[twin].name} = {legend}")
    return _explain(panel, panel.title, series)


def _explain(panel: Panel, title: str, series: Sequence[Series]) -> Drawn:
    """Return a chart with the healthy range and the meaning of the panel's first metric; empty if it has no row."""
    metric = find_metric(panel.explain)
    marks = () if metric is None else tuple(edge for edge in (metric.low, metric.high) if edge is not None)
    chart = Chart(title=title, series=series, is_fraction=panel.is_fraction, marks=marks)
    return Drawn(chart, metric.healthy if metric else "", metric.meaning if metric else "")


@dataclass(frozen=True, slots=True)
class Axis:
    """The stages one after the other on one x axis, all equally wide, whatever their number of steps."""

    stages: tuple[tuple[str, int], ...]
    """(name, last step), in order, of the stages that have an evaluation after step 0."""

    @staticmethod
    def of(*rows_of: Iterable[Row]) -> Axis:
        """Return the stages of all runs. A stage that one run lacks stands where the other has it."""
        last: dict[str, int] = {}
        order: list[str] = []
        for rows in rows_of:
            place = 0
            for row in rows:
                name = row["stage"]
                if name not in order:
                    order.insert(place, name)
                place = order.index(name) + 1
                last[name] = max(last.get(name, 0), int(row["step"]))
        return Axis(tuple((name, last[name]) for name in order if last[name] > 0))

    def x(self, row: Row, before: float) -> float:
        """Return the x of a stage's evaluation. A stage without steps (such as `model`) is drawn where the stage before
        it ended. before: that x."""
        for index, (name, last) in enumerate(self.stages):
            if row["stage"] == name:
                return index + int(row["step"]) / last
        return before

    def ticks(self) -> list[tuple[float, str]]:
        ends = [(index + 1.0, str(last)) for index, (_, last) in enumerate(self.stages)]
        halves = [(index + 0.5, f"{last / 2:g}") for index, (_, last) in enumerate(self.stages) if last % 2 == 0]
        return sorted([(0.0, "0"), *ends, *halves])

    def dividers(self) -> list[tuple[float, str]]:
        return [(float(index), name) for index, (name, _) in enumerate(self.stages)]


def learning_curve(run: PipelineRun, split: str) -> Chart:
    """Return pass@1 with its interval, greedy, pass@k and maj@k on held-out problems, over all stages."""
    rows = _rows(run, split)
    axis = Axis.of(rows)
    k = next((row["k"] for row in rows if "k" in row), "k")
    if rows and all(row["pass@1"] is None for row in rows):  # no reward says which responses are correct
        measured = [row for row in rows if row.get("reward_interval")]
        curve = _series(axis, measured, "reward", "mean reward (95 % interval)", band=True, dots=True)
        return replace(_over_stages(f"{run.name}: held-out problems", axis, [curve]), is_fraction=False)
    names = [("pass@1", "pass@1 (95 % interval)"), ("greedy", "greedy"), ("pass@k", f"pass@{k}"), ("maj@k", f"maj@{k}")]
    series = [
        _series(axis, rows, name, legend, band=name == "pass@1", dashed=name != "pass@1", dots=name == "pass@1")
        for name, legend in names
    ]
    return _over_stages(f"{run.name}: held-out problems", axis, series)


def learning_curves(runs: Sequence[PipelineRun], names: Sequence[str], split: str) -> Chart:
    """Return pass@1 of several runs with its interval. A stage is as wide as in the run where it has the most steps."""
    rows_of = [_rows(run, split) for run in runs]
    axis = Axis.of(*rows_of)
    score = "pass@1" if any(row["pass@1"] is not None for rows in rows_of for row in rows) else "reward"
    series = [
        replace(_series(axis, rows, score, name, band=True, dots=True), colour=index)
        for index, (rows, name) in enumerate(zip(rows_of, names, strict=True))
    ]
    chart = _over_stages(f"{'mean reward' if score == 'reward' else score} on held-out problems", axis, series)
    return replace(chart, is_fraction=score == "pass@1")


def curves(stages: Sequence[StageRun | None], names: Sequence[str], panel: Panel) -> Drawn:
    """Return the first metric of the panel in one stage of several runs; None for a run without the stage."""
    series = [
        Series(name=name, points=points, smooth=panel.smooth, colour=index)
        for index, (stage, name) in enumerate(zip(stages, names, strict=True))
        if stage is not None and (points := stage.curve(panel.explain))
    ]
    legend = panel.metrics[0][1]
    title = panel.title if legend in panel.title.lower() or len(panel.metrics) == 1 else f"{panel.title}: {legend}"
    return _explain(panel, title, series)


def level_curve(run: PipelineRun, split: str) -> Chart | None:
    """Return pass@1 of each level and source, over all stages; None if the problems have neither."""
    rows = _rows(run, split)
    axis = Axis.of(rows)
    names = list(dict.fromkeys(name for row in rows for name in parts_of(row)))
    by_part = [[{**row, **parts[name]} for row in rows if name in (parts := parts_of(row))] for name in names]
    series = [_series(axis, part, "pass@1", name, dots=True) for name, part in zip(names, by_part, strict=True)]
    title = "pass@1 by source" if any("by_source" in row for row in rows) else "pass@1 by level"
    return _over_stages(title, axis, series) if any(each.points for each in series) else None


def _series(
    axis: Axis, rows: Sequence[Row], name: str, legend: str, *, band: bool = False, dashed: bool = False, dots: bool
) -> Series:
    measured = [(x, row) for x, row in _place(axis, rows) if row.get(name) is not None]
    return Series(
        name=legend,
        points=[(x, float(row[name])) for x, row in measured],
        band=[(x, *ends) for x, row in measured if (ends := row.get(f"{name}_interval"))] if band else (),
        labels=[f"{row['stage']}, step {row['step']}" for _, row in measured],
        dashed=dashed,
        dots=dots,
    )


def _place(axis: Axis, rows: Sequence[Row]) -> Iterator[tuple[float, Row]]:
    x = 0.0
    for row in rows:
        x = axis.x(row, x)
        yield x, row


def _over_stages(title: str, axis: Axis, series: Sequence[Series]) -> Chart:
    return Chart(
        title=title,
        series=series,
        is_fraction=True,
        x_label="step of each stage",
        x_ticks=axis.ticks(),
        dividers=axis.dividers(),
    )


def _rows(run: PipelineRun, split: str) -> list[Row]:
    return [row for row in run.evaluations() if row["split"] == split]
