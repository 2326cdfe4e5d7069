"""One interval and one verdict from one number per block: the t interval with n - 1 degrees of freedom.

Every block has its own start, problems, order and noise, so the interval covers all sources of chance. Axes: n blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from ansatz.track.sweep_rows import t_quantile, t_tail

SUPPORTED, REFUTED, SMALL = "supported", "refuted", "supported, but small"
UNDECIDED, NOT_TESTABLE, TOO_FEW = "undecided", "not testable here", "too few blocks"
UNTUNED = "undecided until tuned"
FEW = 5
"""With fewer blocks there is no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """p_above: the p of the one-sided test that the value is at most a limit."""

    value: float
    low: float
    high: float
    num_blocks: int
    p_above: Callable[[float], float]


def mean_interval(values: Sequence[float], *, level: float) -> Interval | None:
    """Return the t interval of the mean; None for fewer than two values, or for values that do not vary."""
    if len(values) < 2 or stdev(values) == 0:
        return None
    mean, error = fmean(values), stdev(values) / math.sqrt(len(values))
    half = t_quantile(level, len(values) - 1) * error

    def p_above(limit: float) -> float:
        return _upper_tail((mean - limit) / error, len(values) - 1)

    return Interval(value=mean, low=mean - half, high=mean + half, num_blocks=len(values), p_above=p_above)


def variance_interval(first: Sequence[float], second: Sequence[float], *, level: float) -> Interval | None:
    """Return log(var first / var second) with the interval of Pitman and Morgan, for values of the same blocks.

    None for fewer than four blocks, or without any variance. With r the correlation, w the ratio and
    K = 1 + 2 (1 - r^2) t^2 / (n - 2), the ends are w (K -+ sqrt(K^2 - 1)) (Morgan 1939).
    """
    n = len(first)
    if n < 4 or min(stdev(first), stdev(second)) == 0:
        return None
    a, b = fmean(first), fmean(second)
    covariance = math.fsum((x - a) * (y - b) for x, y in zip(first, second, strict=True)) / (n - 1)
    r = covariance / (stdev(first) * stdev(second))
    value = 2 * math.log(stdev(first) / stdev(second))
    k = 1 + 2 * (1 - r * r) * t_quantile(level, n - 2) ** 2 / (n - 2)
    half = math.log(k + math.sqrt(k * k - 1))

    def p_above(limit: float) -> float:
        return _upper_tail(math.sinh((value - limit) / 2) * math.sqrt((n - 2) / max(1e-300, 1 - r * r)), n - 2)

    return Interval(value=value, low=value - half, high=value + half, num_blocks=n, p_above=p_above)


def _upper_tail(t: float, degrees: int) -> float:
    inside = t_tail(t, degrees)
    return (1 - inside) / 2 if t > 0 else (1 + inside) / 2


def decide(interval: Interval | None, *, direction: str, delta: float) -> str:
    """Return the verdict of an interval: supported if it lies in the claimed direction, refuted if it excludes a
    difference that matters. Equal: supported within -+ delta, refuted outside of it."""
    if interval is None or interval.num_blocks < FEW:
        return TOO_FEW
    low, high = interval.low, interval.high
    if direction == "equal":
        return SUPPORTED if -delta < low and high < delta else REFUTED if low > delta or high < -delta else UNDECIDED
    if direction == "less":
        low, high = -high, -low
    supported, refuted = low > 0, high < delta
    return SMALL if supported and refuted else SUPPORTED if supported else REFUTED if refuted else UNDECIDED


def p_of(interval: Interval, *, direction: str, delta: float) -> float:
    """Return the p of the one-sided test on which the verdict rests: the test for the claim or the one against it,
    whichever is smaller; the larger one if the verdict says both. For any value at most one of the two can reject
    wrongly, so a rule counts as one test."""
    above = interval.p_above
    if direction == "equal":
        return min(max(above(-delta), 1 - above(delta)), above(delta), 1 - above(-delta))
    tests = (above(0.0), 1 - above(delta)) if direction == "greater" else (1 - above(0.0), above(-delta))
    return (max if decide(interval, direction=direction, delta=delta) == SMALL else min)(tests)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values after Holm's correction for all of them, in their order (Holm 1979)."""
    out, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        out[place] = largest
    return out
