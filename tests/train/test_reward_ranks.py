"""A reward model on several ranks, or with adapters: the numbers of one process, and folders that others load."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from rank_processes import model_folder, on_ranks
from safetensors.torch import load_file
from test_reward_trainer import CLASSES, samples, with_steps

from ansatz.config.schema import TrainSection
from ansatz.models import lora
from ansatz.models.load import load_policy
from ansatz.reward_models.model import HEAD, load_reward_model
from ansatz.reward_models.trainer import LanguageLoss, RewardTrainer, reads
from ansatz.train.optim import Schedule
from ansatz.train.placement import ONE_PROCESS, Placement
from ansatz.train.sample import TrainSample

CASES: dict[str, dict[str, Any]] = {
    "pairs": {"kind": "bradley_terry"},
    "correctness": {"kind": "correctness"},
    "steps": {"kind": "process"},
    "extra layers": {"kind": "process", "extra_layers": 2},
    "language loss": {"kind": "correctness", "lm_coef": 0.5},
    "adapters": {"kind": "bradley_terry", "adapters": True},
    "adapters on steps": {"kind": "process", "adapters": True},
    "fewer groups than ranks": {"kind": "bradley_terry", "groups": 1},
    "large microbatches": {"kind": "process", "tokens_per_microbatch": 4096},
}
SAVED = ("pairs", "extra layers", "adapters")


def make(
    folder: Path,
    kind: Any,
    placement: Placement = ONE_PROCESS,
    *,
    extra_layers: int = 0,
    adapters: bool = False,
    lm_coef: float = 0.0,
    groups: int = 2,
    export_dtype: torch.dtype = torch.float32,
    tokens_per_microbatch: int = 16,
    dtype: torch.dtype = torch.float32,
) -> tuple[RewardTrainer, list[TrainSample]]:
    """A trainer whose head has random weights, and the samples of `groups` prompts."""
    model = load_reward_model(folder, reads=reads(kind), extra_layers=extra_layers, device="cpu")
    for parameter in getattr(model.model, HEAD).parameters():
        parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    if adapters:
        model = lora.add_adapters(model, seed=0, rank=4)
    policy = load_policy(folder, device="cpu") if lm_coef else None
    trainer = RewardTrainer(
        model,
        kind=kind,
        settings=TrainSection(tokens_per_microbatch=tokens_per_microbatch),
        dtype=dtype,
        schedule=Schedule(lr=1e-3),
        language=None if policy is None else LanguageLoss(policy.head.weight.detach(), lm_coef),
        export_dtype=export_dtype,
        placement=placement,
    )
    chosen = [sample for sample in samples() if sample.group < groups]
    return trainer, [with_steps(sample) for sample in chosen] if kind == "process" else chosen


def weights_of(trainer: RewardTrainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.placement.whole(trainer.optimizer.weights()).items()}


def train(trainer: RewardTrainer, rows: list[TrainSample], *, first: int, last: int) -> list[dict[str, float]]:
    return [trainer.update(trainer.batch(rows), step=step).metrics for step in range(first, last + 1)]


def trained(placement: Placement, folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, case in CASES.items():
        trainer, rows = make(folder, placement=placement, **case)
        metrics = train(trainer, rows, first=1, last=3)
        results[name] = metrics, weights_of(trainer), trainer.score_samples(rows)
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("ranks") / "model")


def assert_agree(found: Any, expected: Any, *, name: str) -> None:
    for metrics, reference in zip(found[0], expected[0], strict=True):
        assert metrics == pytest.approx(reference, rel=1e-5, abs=1e-6), name
    assert_same_weights(found[1], expected[1], name=name)
    for scores, reference in zip(found[2], expected[2], strict=True):
        assert scores == pytest.approx(reference, rel=1e-4, abs=5e-5), name  # sums over all weights


def assert_same_weights(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], *, name: str) -> None:
    vectors = [torch.cat([weights[key].flatten() for key in expected]) for weights in (found, expected)]
    difference = (vectors[0] - vectors[1]).norm() / vectors[1].norm()
    assert difference < 1e-6, f"{name}: the weights differ by {difference}"


@pytest.mark.cluster
def test_reward_models_on_two_ranks_agree_with_one_process(folder: Path) -> None:
    expected = trained(ONE_PROCESS, folder)
    found = on_ranks(2, trained, folder)
    for name in CASES:
        assert_agree(found[name], expected[name], name=name)


@pytest.mark.cluster
def test_reward_models_on_one_and_four_ranks_agree_with_one_process(folder: Path) -> None:
    expected = trained(ONE_PROCESS, folder)
    for size in (1, 4):
        found = on_ranks(size, trained, folder)
        for name in CASES:
            assert_agree(found[name], expected[name], name=f"{name} on {size} ranks")


def saved(placement: Placement, folder: Path, out: Path) -> dict[str, Any]:
    """Two steps, a checkpoint in bfloat16, and two further steps."""
    results: dict[str, Any] = {}
    for name in SAVED:
        trainer, rows = make(folder, placement=placement, export_dtype=torch.bfloat16, **CASES[name])
        train(trainer, rows, first=1, last=2)
        if placement.ranks.rank == 0:
            (out / name / "training").mkdir(parents=True)
        placement.ranks.gather(None)
        trainer.save(out / name)
        results[name] = trainer.state(), weights_of(trainer)
        train(trainer, rows, first=3, last=4)
        results[name] = *results[name], weights_of(trainer)
    return results


def resumed(placement: Placement, folder: Path, out: Path, run: dict[str, Any]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name in SAVED:
        trainer, rows = make(folder, placement=placement, export_dtype=torch.bfloat16, **CASES[name])
        trainer.restore(out / name, run[name][0])
        loaded = weights_of(trainer)
        train(trainer, rows, first=3, last=4)
        results[name] = loaded, weights_of(trainer)
    return results


@pytest.mark.cluster
def test_a_checkpoint_of_ranks_is_loaded_by_one_process_and_the_other_way_round(folder: Path, tmp_path: Path) -> None:
    by_ranks = on_ranks(2, saved, folder, tmp_path / "ranks")
    here = saved(ONE_PROCESS, folder, tmp_path / "here")
    for run, continued in (
        (by_ranks, resumed(ONE_PROCESS, folder, tmp_path / "ranks", by_ranks)),
        (here, on_ranks(2, resumed, folder, tmp_path / "here", here)),
        (here, resumed(ONE_PROCESS, folder, tmp_path / "here", here)),
    ):
        for name in SAVED:
            _, at_save, at_end = run[name]
            loaded, end = continued[name]
            assert loaded.keys() == at_save.keys()
            for key, weight in at_save.items():
                assert torch.equal(loaded[key], weight), (name, key)
            assert_same_weights(end, at_end, name=name)


@pytest.mark.parametrize("kind", CLASSES)
def test_adapters_train_themselves_and_the_head_and_are_saved_merged_and_for_peft(folder, tmp_path, kind) -> None:
    trainer, rows = make(folder, kind, adapters=True)
    before = {name: value.detach().clone() for name, value in trainer.model.model.named_parameters()}
    train(trainer, rows, first=1, last=3)
    moved = {name for name, value in trainer.model.model.named_parameters() if not torch.equal(before[name], value)}
    assert (
        moved
        == set(trainer.optimizer.masters)
        == {name for name in before if "lora_" in name or name.startswith("score.")}
    )
    assert all("score" not in name for name in moved if "lora_" in name)
    (tmp_path / "training").mkdir()
    trainer.save(tmp_path)
    base = CLASSES[kind].from_pretrained(folder, num_labels=1)
    for model in (CLASSES[kind].from_pretrained(tmp_path), peft.PeftModel.from_pretrained(base, tmp_path / "adapter")):
        for sample in rows:
            ids = torch.tensor([[*sample.prompt_ids, *sample.token_ids]])
            with torch.no_grad():
                logits = model.eval()(input_ids=ids).logits
            read = [index + len(sample.prompt_ids) for index, _ in sample.steps]
            expected = logits[0, read, 0] if kind == "process" else logits[0]
            (found,) = trainer.score_samples([dataclasses.replace(sample, group=0)])
            torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-4, atol=1e-5)


def test_the_head_is_saved_as_it_is_trained_also_in_bfloat16(folder: Path, tmp_path: Path) -> None:
    trainer, rows = make(folder, "correctness", adapters=True, dtype=torch.bfloat16)
    train(trainer, rows, first=1, last=2)
    (tmp_path / "training").mkdir()
    trainer.save(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")["score.weight"]
    assert torch.equal(stored, trainer.optimizer.weights()["score.weight"])
    assert not torch.equal(stored, stored.bfloat16().float())


def test_fresh_adapters_do_not_change_the_scores(folder: Path) -> None:
    for kind in CLASSES:
        plain, rows = make(folder, kind)
        adapted, _ = make(folder, kind, adapters=True)
        assert adapted.score_samples(rows) == plain.score_samples(rows)
        assert isinstance(plain.model.model, transformers.PreTrainedModel)
