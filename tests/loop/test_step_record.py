"""What a step stores: which groups are looked at, and their log-probs before and after the update."""

from __future__ import annotations

import numpy as np
from fake_trainer import FakeTrainer
from made_up import problem, scored

from ansatz.loop.collect import StepData
from ansatz.loop.step_record import StepRecord, choose_groups
from ansatz.track.token_file import RECORD
from ansatz.train.sample import samples_of_groups
from ansatz.types import Group


def group(index: int, *rewards: float) -> Group:
    members = [scored(problem(index=index), sample=place, reward=reward) for place, reward in enumerate(rewards)]
    return Group(prompt=members[0].rollout.prompt, members=tuple(members))


def step_data(*groups: Group, used: int) -> StepData:
    return StepData(
        sampled=groups,
        groups=groups[:used],
        baseline_of_group={},
        partial=(),
        num_tokens=1,
        metrics={},
        rollout_s=1.0,
        grade_s=0.0,
    )


def test_a_watched_group_knows_the_policy_before_and_after_its_update():
    data = step_data(group(0, 1.0, 1.0), group(1, 0.0, 1.0), group(2, 0.0, 1.0), used=2)
    trainer, samples = FakeTrainer(), samples_of_groups(data.groups)
    batch = trainer.batch(samples)
    record = StepRecord(data, samples, trainer, step=1, max_mb=4.0, find_ends=lambda rollout: [1, 2, 3])
    report = trainer.update(batch, step=1)
    plain, watched, left_out = record.finish(report)
    assert plain.tokens == []
    assert plain.seen == [{"advantage": 1.0}, {"advantage": 1.0}]
    assert watched.seen == [{"advantage": 0.0}, {"advantage": 1.0}]
    assert [list(each.before) for each in watched.tokens] == [[0.0] * 3] * 2
    assert [list(each.after) for each in watched.tokens] == [[-1.0] * 3] * 2
    assert left_out.seen == [{}, {}]


def test_groups_with_a_signal_are_looked_at_first_and_other_steps_choose_others():
    data = step_data(*(group(index, 0.0, float(index % 4 == 0)) for index in range(80)), used=80)
    chosen = [choose_groups(data, step, max_mb=4.0) for step in range(1, 6)]
    assert all(len(places) == 2 and all(place % 4 == 0 for place in places) for places in chosen)
    assert len({tuple(places) for places in chosen}) > 1
    assert choose_groups(step_data(group(0, 1.0, 1.0), used=1), 1, max_mb=4.0) == [0]


def test_groups_beyond_the_megabytes_are_left_out_and_without_any_the_policy_is_not_asked():
    data = step_data(*(group(index, 0.0, 1.0) for index in range(96)), used=96)
    every = choose_groups(data, 1, max_mb=4.0)
    megabytes_of_a_group = np.dtype(RECORD).itemsize * 6 / 1e6
    assert len(every) == 3
    assert set(choose_groups(data, 1, max_mb=2.5 * megabytes_of_a_group)) < set(every)
    assert len(choose_groups(data, 1, max_mb=2.0 * megabytes_of_a_group)) == 2
    assert len(choose_groups(data, 1, max_mb=1.99 * megabytes_of_a_group)) == 1
    assert choose_groups(data, 1, max_mb=0.0) == []

    trainer, samples = FakeTrainer(), samples_of_groups(data.groups)
    batch = trainer.batch(samples)
    trainer.token_logps = None  # pyright: ignore[reportAttributeAccessIssue]
    record = StepRecord(data, samples, trainer, step=1, max_mb=0.0, find_ends=lambda rollout: [1, 2, 3])
    report = trainer.update(batch, step=1)
    assert [stored.tokens for stored in record.finish(report)] == [[]] * 96
