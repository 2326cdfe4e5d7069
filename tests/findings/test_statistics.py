from __future__ import annotations

import math
import random

import pytest
from slow_verdicts import log_ratio_and_half, mean_and_half
from slow_verdicts import t_quantile as slow_quantile

from ansatz.findings.verdicts import (
    Interval,
    decide,
    holm,
    mean_interval,
    t_quantile,
    t_tail,
    variance_interval,
)
from tools.findings.pages import blocks_to_decide


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 8, 19])
def test_quantiles_are_those_of_the_integrated_density(degrees: int) -> None:
    for level in (0.8, 0.95, 0.99):
        assert t_quantile(level, degrees) == pytest.approx(slow_quantile(level, degrees), rel=1e-6)


def test_quantiles_of_the_printed_tables() -> None:
    # Two-sided 95 %: 12.706 (1), 4.303 (2), 3.182 (3), 2.776 (4), 2.365 (7), 2.093 (19).
    printed = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 7: 2.365, 19: 2.093}
    assert {n: round(t_quantile(0.95, n), 3) for n in printed} == printed


def test_five_blocks_give_1_24_standard_deviations_and_eight_0_84() -> None:
    assert round(t_quantile(0.95, 4) / math.sqrt(5), 2) == 1.24
    assert round(t_quantile(0.95, 7) / math.sqrt(8), 2) == 0.84


def test_the_interval_of_a_mean_is_that_of_the_slow_implementation() -> None:
    values = [0.031, -0.004, 0.012, 0.05, 0.022]
    interval = mean_interval(values, level=0.95)
    assert interval is not None
    mean, half = mean_and_half(values, 0.95)
    assert (interval.low, interval.high) == pytest.approx((mean - half, mean + half), rel=1e-6)
    error = half / slow_quantile(0.95, 4)
    assert interval.p_above(0.0) == pytest.approx((1 - t_tail(mean / error, 4)) / 2, rel=1e-6)
    assert mean_interval([0.3], level=0.95) is None
    assert mean_interval([0.3, 0.3], level=0.95) is None


def test_the_interval_of_a_ratio_of_variances_is_where_the_correlation_is_just_significant() -> None:
    rng = random.Random(3)
    shared = [rng.gauss(0, 1) for _ in range(9)]
    first = [x + rng.gauss(0, 2) for x in shared]
    second = [x + rng.gauss(0, 0.5) for x in shared]
    interval = variance_interval(first, second, level=0.95)
    assert interval is not None
    middle, half = log_ratio_and_half(first, second, 0.95)
    assert (interval.low, interval.high) == pytest.approx((middle - half, middle + half), rel=1e-5)
    assert variance_interval(first[:3], second[:3], level=0.95) is None
    assert variance_interval(first, [1.0] * 9, level=0.95) is None


def test_values_that_are_proportional_have_an_interval_without_width() -> None:
    rng = random.Random(1)
    for _ in range(200):  # the correlation is 1 up to rounding, and sometimes more
        first = [rng.gauss(0, 1) for _ in range(5)]
        interval = variance_interval(first, [3 * x for x in first], level=0.95)
        assert interval is not None
        assert (interval.low, interval.high) == pytest.approx((-math.log(9), -math.log(9)), abs=1e-6)


def test_verdicts_follow_from_where_the_interval_lies() -> None:
    def verdict(low: float, high: float, direction: str) -> str:
        interval = Interval(value=(low + high) / 2, low=low, high=high, num_blocks=5, p_above=lambda _: 0.0)
        return decide(interval, direction=direction, delta=2.0)

    assert verdict(1.0, 4.0, "greater") == "supported"
    assert verdict(0.5, 1.5, "greater") == "supported, but small"
    assert verdict(-1.0, 1.5, "greater") == "refuted"
    assert verdict(-1.0, 3.0, "greater") == "undecided"
    assert verdict(-4.0, -1.0, "less") == "supported"
    assert verdict(-1.5, 1.0, "less") == "refuted"
    assert verdict(-1.5, 1.5, "equal") == "supported"
    assert verdict(-2.5, 1.5, "equal") == "undecided"
    assert verdict(2.5, 3.5, "equal") == "refuted"
    assert decide(None, direction="greater", delta=2.0) == "too few blocks"


def test_the_number_of_blocks_that_would_decide_is_the_smallest_one() -> None:
    values = [0.5, 2.5, -0.5, 1.5]  # mean 1, standard deviation 1.291
    needed = blocks_to_decide(values, level=0.95, direction="greater", delta=0.5)
    assert needed is not None
    halves = {n: slow_quantile(0.95, n - 1) * 1.2909944 / math.sqrt(n) for n in (needed - 1, needed)}
    assert halves[needed] < 1.0 <= halves[needed - 1]


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
