"""What every trainer keeps to, the fake included."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_trainer import FakeTrainer
from tiny_models import some_sequences, tiny_policy

from ansatz.config.schema import TrainSection
from ansatz.errors import AlignmentError, CheckpointError
from ansatz.objectives.build import build_objective
from ansatz.track.metrics import check_known
from ansatz.train import checkpoint
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.sample import TrainSample
from ansatz.train.trainer import Trainer

MAX_GAP = 1.05


def local(*, needs_greedy: bool = False, sampler_gap: float = 0.0) -> Trainer[Any]:
    return LocalTrainer(
        tiny_policy(),
        build_objective({"preset": "remax" if needs_greedy else "grpo"}, max_response_tokens=9),
        settings=TrainSection(updates_per_step=2, max_logprob_gap=MAX_GAP),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-2),
    )


def fake(*, needs_greedy: bool = False, sampler_gap: float = 0.0) -> Trainer[Any]:
    return FakeTrainer(updates_per_step=2, needs_greedy=needs_greedy, sampler_gap=sampler_gap, max_logprob_gap=MAX_GAP)


MakeTrainer = Callable[..., Trainer[Any]]


@pytest.fixture(params=[local, fake], ids=["local", "fake"])
def make(request: pytest.FixtureRequest) -> MakeTrainer:
    return request.param


def samples(*, logp: float = -1.0) -> list[TrainSample]:
    """Two groups of two, with rewards 0 and 1."""
    return [
        TrainSample(
            prompt_ids=[3, 4, 5 + index // 2],
            token_ids=response,
            behavior_logps=[logp] * len(response),
            group=index // 2,
            reward=float(index % 2),
        )
        for index, response in enumerate(some_sequences(4, 9, 6, 7))
    ]


def numbers(trainer: Trainer[Any]) -> list[float]:
    return [value for tensor in trainer.weights().tensors().values() for value in tensor.detach().flatten().tolist()]


def test_the_version_counts_updates_and_the_weights_carry_it(make: MakeTrainer) -> None:
    trainer = make()
    assert trainer.version == trainer.weights().version == 0
    report = trainer.update(trainer.batch(samples()), step=1)
    assert report.num_updates == 2
    assert trainer.version == trainer.weights().version == 2


def test_response_log_probs_come_in_the_order_of_the_samples_and_change_nothing(make: MakeTrainer) -> None:
    trainer = make()
    start, version, changes = numbers(trainer), trainer.version, trainer.changes
    found = trainer.response_logps(samples(), [0.5, 1.0])
    alone = [trainer.response_logps([sample], [0.5, 1.0])[0] for sample in samples()]
    assert [len(logps) for logps in found] == [2, 2, 2, 2]
    for logps, expected in zip(found, alone, strict=True):
        assert logps == pytest.approx(expected, rel=1e-5)
    assert all(logp < 0 for logps in found for logp in logps)
    assert (numbers(trainer), trainer.version, trainer.changes) == (start, version, changes)


def test_what_an_update_sees_is_known_by_the_places_of_the_samples(make: MakeTrainer) -> None:
    trainer = make()
    seen = trainer.update(trainer.batch(samples()), step=1).rollouts
    assert sorted(seen) == [0, 1, 2, 3]
    assert [seen[place]["advantage"] > seen[place - 1]["advantage"] for place in (1, 3)] == [True, True]


def test_log_probs_of_tokens_come_in_the_order_of_the_samples(make: MakeTrainer) -> None:
    trainer = make()
    start, taken = numbers(trainer), samples()
    found = trainer.token_logps(taken)
    for each, sample in zip(found, taken, strict=True):
        assert len(each.logps) == len(each.entropies) == len(sample.token_ids)
        (alone,) = trainer.token_logps([sample])
        assert each.logps == pytest.approx(alone.logps, rel=1e-5)
        assert each.entropies == pytest.approx(alone.entropies, rel=1e-5)
    assert trainer.token_logps(taken, of_reference=True) == []
    assert numbers(trainer) == start


def test_an_update_changes_the_weights_and_a_batch_does_not(make: MakeTrainer) -> None:
    trainer = make()
    start = numbers(trainer)
    batch = trainer.batch(samples())
    assert numbers(trainer) == start
    trainer.update(batch, step=1)
    assert numbers(trainer) != start


def test_the_scale_of_the_learning_rate_applies_to_later_updates(make: MakeTrainer) -> None:
    rates = []
    for scale in (None, 1.0, 0.25):
        trainer = make()
        if scale is not None:
            trainer.set_lr_scale(scale)
        rates.append(trainer.update(trainer.batch(samples()), step=1).metrics["train/lr"])
    assert rates[0] == rates[1] == 4 * rates[2]
    still = make()
    still.set_lr_scale(0.0)
    start = numbers(still)
    still.update(still.batch(samples()), step=1)
    assert numbers(still) == pytest.approx(start, abs=1e-9)


def test_a_report_has_documented_finite_metrics_and_counts_tokens(make: MakeTrainer) -> None:
    trainer = make()
    report = trainer.update(trainer.batch(samples()), step=1)
    check_known(report.metrics)
    assert all(math.isfinite(value) for value in report.metrics.values())
    assert report.metrics["train/tokens"] == 4 + 9 + 6 + 7
    assert report.metrics["train/early_stops"] == 0
    assert {"train/loss", "train/lr", "align/mean_exp_gap"} <= report.metrics.keys()
    assert report.num_tokens in (4 + 9 + 6 + 7 + 4 * 3, 2 * (4 + 9 + 6 + 7 + 4 * 3))  # minibatches or epochs


def test_a_sampler_that_is_off_is_refused_before_anything_changes_and_only_if_asked(make: MakeTrainer) -> None:
    trainer = make(sampler_gap=1.0)
    batch = trainer.batch(samples(logp=-30.0))
    start = numbers(trainer)
    with pytest.raises(AlignmentError, match="step 3: sampler and trainer disagree"):
        trainer.update(batch, step=3, check_alignment=True)
    assert (trainer.version, numbers(trainer)) == (0, start)
    assert trainer.update(batch, step=3).num_updates == 2


def test_a_baseline_for_every_group_is_needed_where_greedy_responses_are(make: MakeTrainer) -> None:
    assert not make().needs_greedy
    trainer = make(needs_greedy=True)
    assert trainer.needs_greedy
    with pytest.raises(KeyError):
        trainer.batch(samples(), baseline_of_group={0: 0.5})
    trainer.update(trainer.batch(samples(), baseline_of_group={0: 0.5, 1: 0.0}), step=1)


def test_a_restored_trainer_is_the_saved_one_and_so_is_its_next_step(make: MakeTrainer, tmp_path: Path) -> None:
    trainer, other = make(), make()
    trainer.update(trainer.batch(samples()), step=1)
    path = checkpoint.save(tmp_path, step=1, trainer=trainer, state={"own": 1}, keep=1)
    assert checkpoint.restore(path, trainer=other) == (1, {"own": 1})
    assert json.loads((path / "training/state.json").read_text())["format"] == checkpoint.FORMAT
    for step in (1, 2):
        assert (other.version, numbers(other)) == (trainer.version, numbers(trainer))
        assert other.state() == trainer.state()
        for each in (trainer, other):
            each.update(each.batch(samples()), step=step + 1)


def test_a_folder_without_the_trainers_files_is_refused_and_changes_nothing(make: MakeTrainer, tmp_path: Path) -> None:
    trainer = make()
    trainer.update(trainer.batch(samples()), step=1)
    before = trainer.version, numbers(trainer)
    with pytest.raises(CheckpointError, match="is not a complete checkpoint"):
        trainer.restore(tmp_path, trainer.state())
    assert (trainer.version, numbers(trainer)) == before
