"""Early signs of collapse in the curves of a stage, judged by the ranges of the metric table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean

from ansatz.track.metrics import METRICS, Metric, find_metric
from ansatz.track.runs import StageRun


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One finding: fine or a warning, as a sentence with its numbers."""

    fine: bool
    title: str
    text: str


def healthy_edges(name: str) -> tuple[float, ...]:
    """The ends of the metric's range, to be drawn into its chart."""
    metric = find_metric(name)
    return () if metric is None else tuple(edge for edge in (metric.low, metric.high) if edge is not None)


def health_checks(stage: StageRun) -> list[HealthCheck]:
    """One finding for each metric of the stage that has a range in the table."""
    return [
        _check(metric, curve)
        for metric in METRICS
        if (metric.low is not None or metric.high is not None) and (curve := stage.curve(metric.name))
    ]


def _check(metric: Metric, curve: Sequence[tuple[float, float]]) -> HealthCheck:
    low = -inf if metric.low is None else metric.low
    high = inf if metric.high is None else metric.high
    if metric.worst_step:
        step, worst = max(curve, key=lambda point: point[1])
        fine = worst <= high
        text = f"at most {worst:.4g} (step {step}; limit {high:g})." if worst else "none."
    else:
        values = [value for _, value in curve]
        tenth = max(1, len(values) // 10)
        first, last = fmean(values[:tenth]), fmean(values[-tenth:])
        fine = low <= last <= high
        bound = f"over {low:g}" if metric.low is not None else f"under {high:g}"
        text = f"from {first:.3g} to {last:.3g} (means of the first and the last tenth of the steps; healthy: {bound})."
    title = metric.title[0].upper() + metric.title[1:]
    return HealthCheck(fine=fine, title=title, text=text if fine else f"{text} {metric.advice}")
