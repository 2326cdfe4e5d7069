"""Measurements: numbers that know how much they weigh, and the one function that merges them.

A step is computed in parts: microbatches, minibatches, epochs, and with several processes ranks. Each part measures the
same metrics under the names of `track.metrics`, whose table says how two measurements of a metric become one. Example:
two microbatches measure an entropy of 0.5 over 100 tokens and of 0.2 over 300 tokens.

    >>> parts = [{"train/entropy": mean(50.0, 100)}, {"train/entropy": mean(60.0, 300)}]
    >>> values(merge(parts))
    {'train/entropy': 0.275}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansatz.track.metrics import Reduction, reduction_of


@dataclass(frozen=True, slots=True)
class Measurement:
    """One metric of one part. A mean is kept as total / weight, so that merging adds and rounds only once.

    weight: how many tokens, rollouts or updates (the metric table says which) the total is about. For metrics that are
    not means, the total is the value.
    """

    total: float
    weight: float = 1.0


Measurements = Mapping[str, Measurement]
"""Measurements of one part, by metric name."""


def mean(total: float, weight: float) -> Measurement:
    """Return a mean of `weight` things that add up to `total`. With weight 0 it has no value and changes no merged
    mean."""
    return Measurement(float(total), float(weight))


def merge(parts: Iterable[Measurements]) -> dict[str, Measurement]:
    """Merge the measurements of parts into the measurements of the whole, each by the reduction that the metric table
    gives it.

    A part need not measure every metric. The parts come in the order of their computation.
    """
    by_name: dict[str, list[Measurement]] = {}
    for part in parts:
        for name, measurement in part.items():
            by_name.setdefault(name, []).append(measurement)
    return {name: _merge_one(name, measurements) for name, measurements in by_name.items()}


def values(measurements: Measurements) -> dict[str, float]:
    """Return the plain numbers. A mean over nothing (weight 0) is left out."""
    out: dict[str, float] = {}
    for name, measurement in measurements.items():
        reduction = reduction_of(name)
        if reduction is not Reduction.MEAN:
            out[name] = measurement.total
        elif measurement.weight:
            out[name] = measurement.total / measurement.weight
    return out


def _merge_one(name: str, measurements: list[Measurement]) -> Measurement:
    match reduction_of(name):
        case Reduction.MEAN:
            return Measurement(sum(m.total for m in measurements), sum(m.weight for m in measurements))
        case Reduction.SUM:
            return Measurement(sum(m.total for m in measurements))
        case Reduction.MAX:
            return Measurement(max(m.total for m in measurements))
        case Reduction.LAST:
            return measurements[-1]
