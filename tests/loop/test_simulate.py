"""The simulator: limits that follow by hand, the law of staleness, faults, and its speed."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter

import numpy as np
import pytest

from ansatz.loop.simulate import Costs, Work, best_split, simulate

WORK = Work(groups=16, samples=4, median_tokens=100.0, max_tokens=1000.0, steps=20)
COSTS = Costs(update_s=10.0, token_s=0.01, row_token_s=0.0, publish_s=0.0, push_s=0.0)


def test_without_lag_a_step_is_sampling_and_then_the_update():
    work = dataclasses.replace(WORK, sigma=0.0)  # every response has 100 tokens and takes 1 s
    outcome = simulate(work, COSTS, num_workers=4)
    assert outcome.mean_step_s == pytest.approx(11.0)
    assert outcome.trainer_idle == pytest.approx(1 / 11)
    assert outcome.worker_idle == pytest.approx(10 / 11)


def test_with_lag_the_slower_side_sets_the_pace():
    work = dataclasses.replace(WORK, sigma=0.0, lag=1, steps=100)
    assert simulate(work, COSTS, num_workers=4).mean_step_s == pytest.approx(10.0, rel=0.02)
    slow = dataclasses.replace(COSTS, token_s=0.3)  # 30 s of sampling
    assert simulate(work, slow, num_workers=4).mean_step_s == pytest.approx(30.0, rel=0.02)


def test_rows_that_are_decoded_together_share_the_time_of_a_step():
    work = dataclasses.replace(WORK, sigma=0.0)
    costs = dataclasses.replace(COSTS, token_s=0.0, row_token_s=0.001)
    # 16 groups x 4 samples on 4 workers: 16 rows each, 100 tokens x 16 ms
    assert simulate(work, costs, num_workers=4).mean_step_s == pytest.approx(10.0 + 1.6)


@pytest.mark.parametrize("lag", [0, 1, 4])
def test_staleness_is_that_of_the_schedule(lag: int):
    outcome = simulate(dataclasses.replace(WORK, lag=lag), COSTS, num_workers=4)
    assert outcome.staleness == pytest.approx(np.mean([min(step - 1, lag) for step in range(1, 21)]))


def test_faults_cost_time_and_no_ticket():
    calm = simulate(WORK, COSTS, num_workers=4)
    faulty = simulate(WORK, COSTS, num_workers=4, life_s=40.0, seed=0)
    assert faulty.deaths > 0
    assert faulty.seconds > calm.seconds
    assert faulty.lengths == calm.lengths


def test_what_is_trained_is_what_was_offered_however_long_it_is():
    """Strict order: the multiset of lengths does not depend on lag, workers or faults."""
    offered = Counter(simulate(WORK, COSTS, num_workers=1).lengths)
    for lag, workers in ((1, 3), (2, 8), (4, 16)):
        outcome = simulate(dataclasses.replace(WORK, lag=lag), COSTS, num_workers=workers)
        assert Counter(outcome.lengths) == offered


def test_more_trainers_pay_where_the_update_is_the_longer_part():
    work = dataclasses.replace(WORK, lag=1)
    heavy_update = dataclasses.replace(COSTS, update_s=100.0)
    heavy_sampling = dataclasses.replace(COSTS, update_s=0.1, row_token_s=0.01)
    few, _ = best_split(work, heavy_sampling, gpus=16, gpus_per_worker=1, trainer_gpus=8)
    many, _ = best_split(work, heavy_update, gpus=16, gpus_per_worker=1, trainer_gpus=8)
    assert few < 8 < many


@pytest.mark.slow
def test_a_thousand_gpus_for_a_hundred_steps_take_twenty_seconds():
    work = Work(groups=512, samples=8, median_tokens=800.0, max_tokens=8000.0, steps=100, lag=1)
    costs = Costs(update_s=60.0, token_s=0.01, row_token_s=2e-4, publish_s=2.0, push_s=2.0)
    begun = time.process_time()
    outcome = simulate(work, costs, num_workers=256)  # with 4 GPUs each
    assert time.process_time() - begun < 20.0
    assert len(outcome.step_s) == 100
