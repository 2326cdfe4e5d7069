"""Training on a GPU does what it does on the CPU, and gives the same bits each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from preset_lists import WITHOUT_TEACHER as PRESETS
from rank_processes import make_trainer, model_folder, on_ranks, train, weights_of
from test_trainer_ranks import CASES

from ansatz.train.placement import ONE_PROCESS, Placement

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("gpu") / "model")


def trained(
    placement: Placement, model: Path, device: str, case: dict[str, Any], dtype: torch.dtype = torch.float32
) -> tuple[list[dict[str, float]], torch.Tensor]:
    """(metrics of three steps, all weights after them, on the CPU)."""
    trainer = make_trainer(model, **case, placement=placement, device=device, dtype=dtype)
    metrics = train(trainer, first=1, last=3)
    return metrics, torch.cat([value.flatten().cpu() for value in weights_of(trainer).values()])


def assert_agree(found: Any, expected: Any, *, weights: float = 1e-4) -> None:
    for metrics, reference in zip(found[0], expected[0], strict=True):
        assert metrics == pytest.approx(reference, rel=1e-3, abs=1e-4)
    assert (found[1] - expected[1]).norm() / expected[1].norm() < weights


@pytest.mark.parametrize("name", CASES)
def test_in_float32_a_gpu_trains_as_the_cpu_does(model: Path, name: str) -> None:
    on_gpu, on_cpu = (trained(ONE_PROCESS, model, device, CASES[name]) for device in ("cuda", "cpu"))
    assert_agree(on_gpu, on_cpu)


# kl_cov takes the tokens that covary most. Which of equal ones it takes depends on the device.
@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "kl_cov"])
def test_every_preset_trains_on_a_gpu_as_on_the_cpu(model: Path, preset: str) -> None:
    case = {"algorithm": {"preset": preset}, "updates_per_step": 2}
    try:
        on_cpu = trained(ONE_PROCESS, model, "cpu", case)
    except (ValueError, AssertionError, KeyError) as error:
        pytest.skip(f"it needs other samples: {error}")
    assert_agree(trained(ONE_PROCESS, model, "cuda", case), on_cpu)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["grpo", "critic", "exact kl", "large microbatches"])
def test_the_same_steps_give_the_same_bits_on_a_gpu(model: Path, name: str, dtype: torch.dtype) -> None:
    first, second = (trained(ONE_PROCESS, model, "cuda", CASES[name], dtype) for _ in range(2))
    assert first[0] == second[0]
    assert first[1].equal(second[1])


def test_one_rank_with_nccl_agrees_with_one_process(model: Path) -> None:
    for name in ("grpo", "critic", "exact kl", "adapters"):
        sharded = on_ranks(1, trained, model, "cuda", CASES[name], device="cuda")
        assert_agree(sharded, trained(ONE_PROCESS, model, "cuda", CASES[name]))


@pytest.mark.parametrize(("optimizer", "difference"), [("adamw_offload", 1e-4), ("adamw_8bit", 1e-2)])
def test_optimizers_that_need_less_memory_train_nearly_the_same(model: Path, optimizer: str, difference: float) -> None:
    if optimizer == "adamw_8bit":
        pytest.importorskip("bitsandbytes")
    case = {"algorithm": {"preset": "grpo"}, "optimizer": {"name": optimizer}}
    found = trained(ONE_PROCESS, model, "cuda", case, torch.bfloat16)
    assert_agree(found, trained(ONE_PROCESS, model, "cuda", CASES["grpo"], torch.bfloat16), weights=difference)
