"""Which charts are drawn of a run: the learning curve on held-out problems, and the curves of each stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ansatz.errors import DataError
from ansatz.track.health import healthy_edges
from ansatz.track.jsonl import Row
from ansatz.track.metrics import find_metric
from ansatz.track.runs import PipelineRun, StageRun, read_pipeline
from ansatz.track.svg import Chart, Series, line_chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart of a stage. metrics: (name, legend). explain: the metric whose row of the table is shown beneath."""

    title: str
    metrics: tuple[tuple[str, str], ...]
    share: bool = False
    smooth: bool = True

    @property
    def explain(self) -> str:
        return self.metrics[0][0]


PANELS = (
    Panel(title="Reward", metrics=(("rollout/rewards", "reward"), ("rollout/accuracy", "accuracy"))),
    Panel(title="Loss", metrics=(("train/loss", "loss"),)),
    Panel(
        title="Response length (tokens)",
        metrics=(("rollout/response_length", "mean"), ("rollout/response_length_max", "longest")),
    ),
    Panel(title="Entropy (nats a token)", metrics=(("train/entropy", "entropy"),)),
    Panel(title="Sampler against trainer", metrics=(("align/mean_gap", "measure"),)),
    Panel(title="Clipped share of tokens", metrics=(("train/clip_frac", "clipped"),)),
    Panel(title="Gradient norm", metrics=(("train/grad_norm", "norm"),)),
    Panel(title="Importance ratio", metrics=(("train/ratio_max", "largest"), ("train/ratio_mean", "mean"))),
    Panel(
        title="KL (nats a token)", metrics=(("train/approx_kl", "of the update"), ("train/kl_ref", "to the reference"))
    ),
    Panel(
        title="Signs of collapse",
        metrics=(
            ("rollout/repetition", "self-repetition"),
            ("rollout/truncated_frac", "cut off"),
            ("rollout/no_answer_frac", "no answer"),
        ),
    ),
    Panel(title="Groups with signal", metrics=(("rollout/groups_with_signal_frac", "groups"),), share=True),
    Panel(
        title="Time of a step (s)",
        metrics=(
            ("time/step_s", "all"),
            ("time/rollout_s", "sampling"),
            ("time/update_s", "update"),
            ("time/grade_s", "grading"),
        ),
    ),
    Panel(title="Learning rate", metrics=(("train/lr", "learning rate"),), smooth=False),
)
"""In the order of the report. A metric in none of them gets a chart of its own under "all other curves"."""


def stage_panels(stage: StageRun) -> tuple[list[Panel], list[Panel]]:
    """(the panels that the stage has a metric for, one panel for each metric that none of them shows)."""
    names = stage.metric_names()
    main = [panel for panel in PANELS if any(name in names for name, _ in panel.metrics)]
    shown = {name for panel in main for name, _ in panel.metrics}
    return main, [Panel(title=name, metrics=((name, name),)) for name in names if name not in shown]


def panel_chart(stage: StageRun, panel: Panel) -> Chart:
    """Lines that coincide are drawn once, under both names; a line keeps its colour when one beside it is absent."""
    series: list[Series] = []
    for place, (name, legend) in enumerate(panel.metrics):
        points = stage.curve(name)
        twin = next((index for index, one in enumerate(series) if one.points == points), None)
        if points and twin is None:
            series.append(Series(name=legend, points=points, smooth=panel.smooth, colour=place))
        elif points and twin is not None:
            series[twin] = replace(series[twin], name=f"{series[twin].name} = {legend}")
    return Chart(title=panel.title, series=series, share=panel.share, marks=healthy_edges(panel.explain))


def panel_note(panel: Panel) -> tuple[str, str]:
    """(healthy range, what it means when it moves) of the panel's first metric."""
    metric = find_metric(panel.explain)
    return (metric.healthy, metric.meaning) if metric else ("", "")


@dataclass(frozen=True, slots=True)
class Axis:
    """Stages side by side on one x axis, each with the same width whatever its number of steps."""

    stages: tuple[tuple[str, int], ...]
    """(name, last step), in order, of the stages that have an evaluation past step 0."""

    @staticmethod
    def of(run: PipelineRun, split: str) -> Axis:
        last: dict[str, int] = {}
        for row in _rows(run, split):
            last[row["stage"]] = max(last.get(row["stage"], 0), int(row["step"]))
        return Axis(tuple((name, step) for name, step in last.items() if step > 0))

    def x(self, row: Row, before: float) -> float:
        """A stage without steps (a model just made) stands where the stage before it ended."""
        for place, (name, last) in enumerate(self.stages):
            if row["stage"] == name:
                return place + int(row["step"]) / last
        return before

    def ticks(self) -> list[tuple[float, str]]:
        ends = [(place + 1.0, str(last)) for place, (_, last) in enumerate(self.stages)]
        halves = [(place + 0.5, f"{last / 2:g}") for place, (_, last) in enumerate(self.stages) if last % 2 == 0]
        return sorted([(0.0, "0"), *ends, *halves])

    def dividers(self) -> list[tuple[float, str]]:
        return [(float(place), name) for place, (name, _) in enumerate(self.stages)]


def learning_curve(run: PipelineRun, split: str) -> Chart:
    """pass@1 with its interval, greedy, pass@k and maj@k on held-out problems, over all stages."""
    axis, rows = Axis.of(run, split), _rows(run, split)
    k = next((row["k"] for row in rows if "k" in row), "k")
    names = [("pass@1", "pass@1 (95 % interval)"), ("greedy", "greedy"), ("pass@k", f"pass@{k}"), ("maj@k", f"maj@{k}")]
    series = [
        _series(axis, rows, name, legend, band=name == "pass@1", dashed=name != "pass@1", dots=name == "pass@1")
        for name, legend in names
    ]
    return _over_stages(f"{run.name}: held-out problems", axis, series)


def level_curve(run: PipelineRun, split: str) -> Chart | None:
    """pass@1 of each level, over all stages; None when there are no levels."""
    axis, rows = Axis.of(run, split), _rows(run, split)
    levels = list(dict.fromkeys(level for row in rows for level in row.get("by_level", {})))
    by_level = [
        [{**row, **row["by_level"][level]} for row in rows if level in row.get("by_level", {})] for level in levels
    ]
    series = [
        _series(axis, part, "pass@1", f"level {level}", dots=True) for level, part in zip(levels, by_level, strict=True)
    ]
    return _over_stages("pass@1 by level", axis, series) if series else None


def write_learning_curve(pipeline_dirs: Sequence[Path], path: Path) -> Path:
    """One SVG file with the held-out pass@1 of one or more pipelines, such as three seeds, over their stages.

    It carries its own style for light and dark. The stages and steps of the axis are those of the first pipeline.
    """
    runs = [read_pipeline(Path(folder)) for folder in pipeline_dirs]
    if not runs:
        raise DataError("a learning curve of 0 pipelines cannot be drawn; give at least one folder such as runs/NAME")
    split = _first_split(runs[0])
    axis = Axis.of(runs[0], split)
    series = [_series(Axis.of(run, split), _rows(run, split), "pass@1", run.name, band=True, dots=True) for run in runs]
    chart = _over_stages("Held-out pass@1 with 95 % interval", axis, series)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line_chart(chart, width=820, height=400, standalone=True) + "\n", encoding="utf-8")
    return path


def _series(
    axis: Axis, rows: Sequence[Row], name: str, legend: str, *, band: bool = False, dashed: bool = False, dots: bool
) -> Series:
    found = [(x, row) for x, row in _placed(axis, rows) if row.get(name) is not None]
    return Series(
        name=legend,
        points=[(x, float(row[name])) for x, row in found],
        band=[(x, *row[f"{name}_interval"]) for x, row in found] if band else (),
        labels=[f"{row['stage']}, step {row['step']}" for _, row in found],
        dashed=dashed,
        dots=dots,
    )


def _placed(axis: Axis, rows: Sequence[Row]) -> Iterator[tuple[float, Row]]:
    x = 0.0
    for row in rows:
        x = axis.x(row, x)
        yield x, row


def _over_stages(title: str, axis: Axis, series: Sequence[Series]) -> Chart:
    return Chart(
        title=title,
        series=series,
        share=True,
        x_label="step of each stage",
        x_ticks=axis.ticks(),
        dividers=axis.dividers(),
    )


def _rows(run: PipelineRun, split: str) -> list[Row]:
    return [row for row in run.evaluations() if row["split"] == split]


def _first_split(run: PipelineRun) -> str:
    splits = run.splits()
    if not splits:
        raise DataError(f"{run.folder} has no evaluations yet, so there is no learning curve to draw.")
    return splits[0]
