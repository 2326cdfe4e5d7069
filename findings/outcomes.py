"""Outcomes of single findings, which sweep files name as findings/outcomes.py:NAME."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from ansatz.evaluate.estimators import pass_at_k_exactly
from ansatz.findings.outcomes import curve, exact_pass, read_logps, steps_to
from ansatz.track.base import EXACT
from ansatz.track.runs import PipelineRun


def growth(run: PipelineRun, *, metric: str, steps: int = 5) -> float | None:
    """Return the mean of a metric in the last steps over that in the first ones."""
    values = [value for _, value in curve(run, metric)]
    first = fmean(values[:steps]) if values else 0.0
    return fmean(values[-steps:]) / first if first else None


def metric_at(run: PipelineRun, *, metric: str, value: float, number: str = EXACT, steps: int = 5) -> float | None:
    """Return the mean of a metric in the steps around the one at which a number reaches a value: at equal progress."""
    reached = steps_to(run, value=value, number=number)
    near = [] if reached is None else [y for x, y in curve(run, metric) if abs(x - reached) <= steps / 2]
    return fmean(near) if near else None


def log_odds_gains(run: PipelineRun, *, temperature: float = 1.0) -> Sequence[tuple[float, float]]:
    """Return (log-odds before, gain in log-odds) of each problem between the first and the last evaluation."""
    before, after = read_logps(run, 0, temperature), read_logps(run, None, temperature)

    def log_odds(logp: float) -> float:
        return logp - float(np.log(-np.expm1(min(logp, -1e-9))))

    return [(log_odds(before[name]), log_odds(after[name]) - log_odds(before[name])) for name in before]


def log_odds_slope(run: PipelineRun, *, below: float = 0.01, temperature: float = 1.0) -> float | None:
    """Return the least-squares slope of the gain in log-odds on the initial log-odds, over the problems whose initial
    probability is below a limit. Above 0: the least likely solutions gain least."""
    limit = float(np.log(below / (1 - below))) if below < 1 else np.inf
    pairs = [pair for pair in log_odds_gains(run, temperature=temperature) if pair[0] < limit]
    if len(pairs) < 3:
        return None
    x, y = np.array(pairs).T
    spread = float(((x - x.mean()) ** 2).sum())
    return float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread else None


def cross_over(run: PipelineRun, *, temperature: float = 1.0, most: int = 10**6) -> float | None:
    """Return log10 of the smallest k for which the exact pass@k before the stage is at least that after it; None if
    there is none up to `most`."""
    before, after = read_logps(run, 0, temperature), read_logps(run, None, temperature)
    logps = [[each[name] for name in before] for each in (before, after)]
    for power in np.arange(0.0, np.log10(most) + 1e-9, 0.05):
        first, last = (pass_at_k_exactly(each, k=round(10**power)).mean() for each in logps)
        if first >= last:
            return float(power)
    return None


def exact_gain(run: PipelineRun, *, k: int = 1, temperature: float = 1.0) -> float:
    """Return by how much the exact pass@k rose in the stage."""
    return exact_pass(run, k=k, temperature=temperature) - exact_pass(run, k=k, step=0, temperature=temperature)
