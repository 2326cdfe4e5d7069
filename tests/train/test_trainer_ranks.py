"""A trainer on several ranks does what one process does."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_weight_store import FakeWeightStore
from preset_lists import WITHOUT_TEACHER as PRESETS
from rank_processes import make_trainer, model_folder, on_ranks, train, weights_of
from test_local import samples_with_gap
from test_response_logps import TEMPERATURES, logps_of, logps_on, some_samples

from ansatz.errors import AlignmentError
from ansatz.models.load import load_policy
from ansatz.models.weights import LiveWeights
from ansatz.train.placement import ONE_PROCESS, Placement
from ansatz.train.sample import TrainSample

CASES: dict[str, dict[str, Any]] = {
    "grpo": {"algorithm": {"preset": "grpo"}},
    "several updates": {"algorithm": {"preset": "dapo"}, "updates_per_step": 2, "epochs_per_step": 2},
    "critic": {"algorithm": {"preset": "ppo"}},
    "reference": {"algorithm": {"preset": "grpo", "kl_coef": 0.1}, "reference_update_interval": 2},
    "exact kl": {"algorithm": {"preset": "grpo", "kl": "full", "kl_coef": 0.1}},
    "entropy bonus": {"algorithm": {"preset": "grpo", "entropy_coef": 0.01}},
    "whole minibatch": {"algorithm": {"preset": "clip_cov"}},
    "greedy baseline": {"algorithm": {"preset": "remax"}},
    "adapters": {"algorithm": {"preset": "grpo", "kl_coef": 0.1}, "adapters": True},
    "critic from a model": {"algorithm": {"preset": "a2c"}, "critic_from_model": True},
    "activation checkpointing": {"algorithm": {"preset": "ppo"}, "checkpointing": True},
    "adapters with activation checkpointing": {
        "algorithm": {"preset": "grpo", "entropy_coef": 0.01},
        "adapters": True,
        "checkpointing": True,
    },
    "large microbatches": {"algorithm": {"preset": "grpo"}, "tokens_per_microbatch": 4096},
}
PRESET_CASES: dict[str, dict[str, Any]] = {
    name: {"algorithm": {"preset": name}, "updates_per_step": 2} for name in PRESETS
}


def trained(placement: Placement, model: Path, cases: dict[str, dict[str, Any]], num_steps: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, case in cases.items():
        trainer = make_trainer(model, **case, placement=placement)
        metrics = train(trainer, first=1, last=num_steps)
        results[name] = metrics, weights_of(trainer)
    return results


def assert_agree(found: Any, expected: Any, *, name: str, rel: float = 1e-5) -> None:
    for metrics, reference in zip(found[0], expected[0], strict=True):
        # `mismatch_max` is a single difference of log-probs, each of which rounds to a few 1e-7.
        assert metrics == pytest.approx(reference, rel=rel, abs=5e-6), name
    vectors = [torch.cat([result[1][key].flatten() for key in expected[1]]) for result in (found, expected)]
    difference = (vectors[0] - vectors[1]).norm() / vectors[1].norm()
    assert difference < 1e-6, f"{name}: the weights differ by {difference}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("ranks") / "model")


@pytest.mark.cluster
def test_two_ranks_agree_with_one_process(model: Path) -> None:
    expected = trained(ONE_PROCESS, model, CASES, 3)
    found = on_ranks(2, trained, model, CASES, 3)
    for name in CASES:
        assert_agree(found[name], expected[name], name=name)


TEACHER_CASES: dict[str, dict[str, Any]] = {
    "log ratio": {"algorithm": {"preset": "opd"}, "has_teacher": True},
    "divergence": {"algorithm": {"preset": "gkd"}, "has_teacher": True},
    "rewards too": {
        "algorithm": {"preset": "grpo", "kl": "full", "kl_coef": 0.5, "kl_to": "teacher"},
        "has_teacher": True,
    },
}


@pytest.mark.cluster
def test_two_ranks_with_a_teacher_agree_with_one_process(model: Path) -> None:
    expected = trained(ONE_PROCESS, model, TEACHER_CASES, 2)
    found = on_ranks(2, trained, model, TEACHER_CASES, 2)
    for name in TEACHER_CASES:  # advantages are differences of log-probs, which round
        assert_agree(found[name], expected[name], name=name, rel=1e-4)


def compared(placement: Placement, model: Path, samples: dict[float, list[TrainSample]]) -> dict[str, Any]:
    """Samples of the first weights, compared with these after a step. By their gap: the metrics, or the error."""
    trainer = make_trainer(model, {"preset": "grpo"}, placement)
    store = FakeWeightStore()
    store.publish(0, LiveWeights(policy=load_policy(model, device="cpu"), version=0))
    train(trainer, first=1, last=1)
    before, results = weights_of(trainer), dict[str, Any]()
    for gap, rows in samples.items():
        try:
            results[str(gap)] = trainer.check_against(partial(store.load, 0), trainer.batch(rows), step=2)
        except AlignmentError as error:
            results[str(gap)] = str(error)
    after = weights_of(trainer)
    return results | {"kept": all(torch.equal(after[name], value) for name, value in before.items())}


def test_ranks_compare_a_lagging_sampler_with_the_weights_that_it_had(model: Path) -> None:
    trainer = make_trainer(model, {"preset": "grpo"})
    samples = {
        gap: [replace(row, versions=[0] * len(row.token_ids)) for row in samples_with_gap(trainer, {1: gap})]
        for gap in (0.0, 0.3)
    }
    found = on_ranks(2, compared, model, samples)
    assert found["0.0"]["align/max_gap"] < 1e-5
    assert found["0.3"].startswith("step 2: sampler and trainer disagree about log-probs")
    assert found["kept"]


def test_ranks_measure_responses_as_one_process_does_and_in_the_order_of_the_samples(model: Path) -> None:
    samples = some_samples()
    expected = logps_of(load_policy(model, device="cpu"), samples, TEMPERATURES)
    found = on_ranks(2, logps_on, model, samples)
    for logps, alone in zip(found, expected, strict=True):
        assert logps == pytest.approx(alone, rel=1e-5, abs=1e-5)


@pytest.mark.cluster
def test_one_and_four_ranks_agree_with_one_process(model: Path) -> None:
    expected = trained(ONE_PROCESS, model, CASES, 4)
    for size in (1, 4):
        found = on_ranks(size, trained, model, CASES, 4)
        for name in CASES:
            assert_agree(found[name], expected[name], name=f"{name} on {size} ranks")


@pytest.mark.cluster
def test_every_preset_trains_on_two_ranks_as_in_one_process(model: Path) -> None:
    """Two updates, of which the second needs the old log-probs."""
    expected = trained(ONE_PROCESS, model, PRESET_CASES, 1)
    found = on_ranks(2, trained, model, PRESET_CASES, 1)
    for name in PRESETS:
        assert_agree(found[name], expected[name], name=name)
        loss, reference = found[name][0][0]["train/loss"], expected[name][0][0]["train/loss"]
        assert loss == pytest.approx(reference, rel=1e-6, abs=1e-6), name


SAVED = ("critic", "reference", "adapters")


def saved(placement: Placement, model: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """Two steps, a checkpoint, and two further steps."""
    results: dict[str, dict[str, Any]] = {}
    for name in SAVED:
        trainer = make_trainer(model, **CASES[name], placement=placement, export_dtype=torch.bfloat16)
        train(trainer, first=1, last=2)
        if placement.ranks.rank == 0:
            (folder / name / "training").mkdir(parents=True)
        placement.ranks.gather(None)
        trainer.save(folder / name)
        state, at_save = trainer.state(), weights_of(trainer)
        train(trainer, first=3, last=4)
        results[name] = {"state": state, "at_save": at_save, "at_end": weights_of(trainer)}
    return results


def resumed(placement: Placement, model: Path, folder: Path, run: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The checkpoints loaded, and two further steps."""
    results: dict[str, Any] = {}
    for name in SAVED:
        trainer = make_trainer(model, **CASES[name], placement=placement, export_dtype=torch.bfloat16)
        trainer.restore(folder / name, run[name]["state"])
        loaded = weights_of(trainer)
        train(trainer, first=3, last=4)
        results[name] = {"loaded": loaded, "at_end": weights_of(trainer)}
    return results


def assert_continues(run: dict[str, Any], continued: dict[str, Any], *, same_bits: bool) -> None:
    """What was loaded is what was saved, and the steps after that end in the same weights."""
    for name in SAVED:
        for key, weight in run[name]["at_save"].items():
            assert torch.equal(continued[name]["loaded"][key], weight), (name, key)
        for key, weight in run[name]["at_end"].items():
            assert not same_bits or torch.equal(continued[name]["at_end"][key], weight), (name, key)
        assert_agree(([], continued[name]["at_end"]), ([], run[name]["at_end"]), name=name)


@pytest.mark.cluster
def test_a_checkpoint_of_two_ranks_is_loaded_by_any_number(model: Path, tmp_path: Path) -> None:
    run = on_ranks(2, saved, model, tmp_path)
    assert_continues(run, resumed(ONE_PROCESS, model, tmp_path, run), same_bits=False)
    for size in (1, 2, 4):
        assert_continues(run, on_ranks(size, resumed, model, tmp_path, run), same_bits=size == 2)


@pytest.mark.cluster
def test_ranks_load_the_checkpoint_of_one_process(model: Path, tmp_path: Path) -> None:
    run = saved(ONE_PROCESS, model, tmp_path)
    assert_continues(run, on_ranks(2, resumed, model, tmp_path, run), same_bits=False)
