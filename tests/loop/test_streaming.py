"""Other orders of work: limits that follow by hand, published times, and what they do to long problems."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest

from ansatz.loop.simulate import Costs, Work, simulate
from ansatz.loop.streaming import Stream, simulate_stream

FIXED = Work(groups=16, samples=4, median_tokens=100.0, max_tokens=1000.0, sigma=0.0, steps=50)
COSTS = Costs(update_s=10.0, token_s=0.01, row_token_s=0.0)


def step_s(work: Work, costs: Costs, stream: Stream, *, num_workers: int, seed: int = 0) -> float:
    return simulate_stream(work, costs, stream, num_workers=num_workers, seed=seed).mean_step_s


def oldest_first(work: Work, lag: int, **more: float) -> Stream:
    return Stream(ahead=lag * work.groups, window=work.groups, **more)


def test_without_lag_a_step_is_sampling_then_the_update_then_the_pauses():
    assert step_s(FIXED, COSTS, oldest_first(FIXED, 0), num_workers=4) == pytest.approx(11.0)
    costs = dataclasses.replace(COSTS, publish_s=2.0, other_s=3.0)
    assert step_s(FIXED, costs, oldest_first(FIXED, 0), num_workers=4) == pytest.approx(16.0)


def test_with_lag_the_slower_side_sets_the_pace():
    assert step_s(FIXED, COSTS, oldest_first(FIXED, 1), num_workers=4) == pytest.approx(10.0, rel=0.01)
    slow = dataclasses.replace(COSTS, token_s=0.0, row_token_s=0.02)  # 16 rows x 100 tokens x 0.02 = 32 s of sampling
    assert step_s(FIXED, slow, oldest_first(FIXED, 1), num_workers=4) == pytest.approx(32.0, rel=0.03)


def test_a_limit_of_running_groups_makes_waves():
    stream = oldest_first(FIXED, 0, max_in_flight=4)
    assert step_s(FIXED, COSTS, stream, num_workers=4) == pytest.approx(10.0 + 4 * 1.0)


def test_weights_that_change_under_running_responses_save_the_wait_of_the_workers():
    """Ours drains its workers at every version. Long responses then keep them nearly empty."""
    work = dataclasses.replace(FIXED, sigma=0.99, lag=2, steps=60)
    costs = dataclasses.replace(COSTS, update_s=1.0, token_s=0.01, row_token_s=0.005)
    drained = simulate(work, costs, num_workers=4).mean_step_s
    flowing = step_s(work, costs, oldest_first(work, 2), num_workers=4)
    assert flowing < 0.95 * drained


def test_a_window_smaller_than_an_update_is_refused():
    with pytest.raises(ValueError, match="cannot hold an update of 16"):
        simulate_stream(FIXED, COSTS, Stream(ahead=0, window=8), num_workers=1)


MARIN = {  # seconds per update by allowance, for 64 and 192 groups at the same time
    64: (85.24, 55.83, 50.93, 49.13, 43.01),
    192: (62.35, 43.60, 35.44, 31.42, 29.42),
}
COPY_S = {64: 21.0, 192: 4.7}


@pytest.mark.parametrize("in_flight", [64, 192])
def test_published_times_of_marin_at_allowances_2_to_4_within_15_percent(in_flight: int):
    """benchmarks/simulator.py fits the two numbers of decoding to allowances 0 and 1 of both branches, and says where
    the others are from."""
    work = Work(groups=32, samples=4, median_tokens=1.0, max_tokens=5.0, steps=100)
    costs = Costs(update_s=7.9, token_s=7.85, row_token_s=0.0857, publish_s=COPY_S[in_flight], other_s=10.5)
    for allowance in (2, 3, 4):
        stream = oldest_first(work, allowance, max_in_flight=in_flight)
        predicted = step_s(work, costs, stream, num_workers=8)
        assert predicted == pytest.approx(MARIN[in_flight][allowance], rel=0.15)


@pytest.mark.parametrize(("threshold", "published_s"), [(0.1, 171.30), (0.3, 146.11), (0.5, 150.63)])
def test_published_times_of_verl_with_stale_samples_within_20_percent(threshold: float, published_s: float):
    """An eighth of its 64 trainers, 64 samplers and 512 groups: four updates with 16 groups each, as they land."""
    work = Work(groups=16, samples=16, median_tokens=1.0, max_tokens=13.0, steps=10)
    costs = Costs(update_s=98.77, token_s=14.0, row_token_s=0.0571, publish_s=4.1)
    stream = Stream(ahead=round(64 * threshold), window=math.inf, updates_per_publish=4)
    assert step_s(work, costs, stream, num_workers=8) == pytest.approx(published_s, rel=0.2)


LONG = Work(groups=16, samples=1, median_tokens=100.0, max_tokens=2000.0, steps=200)
LONG_COSTS = Costs(update_s=1.0, token_s=0.02, row_token_s=0.0005)  # half of the responses take over 2 s


def long_share(lengths: tuple[float, ...], limit: float) -> float:
    """The share of all tokens in problems that are longer than the limit, in percent."""
    values = np.array(lengths)
    return 100 * float(values[values > limit].sum() / values.sum())


def test_only_discarding_changes_which_problems_are_trained():
    """Durations belong to problems. Over 200 steps, the longest tenth of the problems has its share of the tokens."""
    strict = simulate(dataclasses.replace(LONG, lag=2), LONG_COSTS, num_workers=4)
    assert Counter(strict.lengths) == Counter(simulate(LONG, LONG_COSTS, num_workers=1).lengths)
    fair = simulate_stream(LONG, LONG_COSTS, oldest_first(LONG, 2), num_workers=4)
    limit = float(np.quantile(fair.lengths, 0.9))
    window = simulate_stream(LONG, LONG_COSTS, Stream(ahead=32, window=24), num_workers=4)
    discarding = simulate_stream(LONG, LONG_COSTS, Stream(ahead=96, window=math.inf, max_age=2), num_workers=4)
    offered = long_share(fair.lengths, limit)
    assert abs(long_share(window.lengths, limit) - offered) < 1.0
    assert discarding.resampled > 0
    assert offered - long_share(discarding.lengths, limit) > 10.0
