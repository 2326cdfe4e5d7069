"""FSDP2's gradients on 1, 2 and 4 ranks against one process, and what they are without the sum over ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import make_trainer, model_folder, on_ranks, train
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from ansatz.train.local import LocalTrainer
from ansatz.train.optim import MasterAdamW
from ansatz.train.placement import ONE_PROCESS, Placement

CASES: dict[str, dict[str, Any]] = {
    "grpo": {"algorithm": {"preset": "grpo", "kl_coef": 0.1}},
    "ppo with a critic": {"algorithm": {"preset": "ppo"}},
}
FORCE_SUM, DIVIDE = "set_force_sum_reduction_for_comms", "set_gradient_divide_factor"
Tensors = dict[str, torch.Tensor]


@dataclass(slots=True)
class Steps:
    """start: of each step, weights and Adam's state of every optimizer. gradients: of each update, before clipping."""

    start: list[list[tuple[Tensors, Tensors]]] = field(default_factory=list[list[tuple[Tensors, Tensors]]])
    gradients: list[Tensors] = field(default_factory=list[Tensors])


def run_cases(placement: Placement, model: Path, num_steps: int, expected: dict[str, Steps] | None) -> dict[str, Steps]:
    """Every case. expected: each step starts from the state that this run had, so that only one step's rounding counts.

    Otherwise the updates would amplify it: after ten steps, gradients of one process with another size of microbatches
    differ by 2e-5 from those with this one.
    """
    results: dict[str, Steps] = {}
    for name, case in CASES.items():
        trainer = make_trainer(model, **case, placement=placement)
        results[name] = steps = Steps()
        optimizers = [trainer.optimizer, *([] if trainer.critic is None else [trainer.critic.optimizer])]
        for optimizer in optimizers:
            _record(trainer, optimizer, steps.gradients)
        for step in range(num_steps):
            if expected is not None:
                for optimizer, state in zip(optimizers, expected[name].start[step], strict=True):
                    optimizer.load(*state)
            steps.start.append([(_copies(each.weights()), _copies(each.state())) for each in optimizers])
            train(trainer, first=step + 1, last=step + 1)
        if placement is not ONE_PROCESS:
            steps.start.clear()  # sharded
    return results


def _copies(tensors: Tensors) -> Tensors:
    return {name: value.clone() for name, value in tensors.items()}


def _record(trainer: LocalTrainer, optimizer: MasterAdamW, recorded: list[Tensors]) -> None:
    update = optimizer.step

    def step(**settings: Any) -> float:
        sums = {name: master.grad for name, master in optimizer.masters.items() if master.grad is not None}
        recorded.append(_copies(trainer.placement.whole(sums)))
        return update(**settings)

    optimizer.step = step  # pyright: ignore[reportAttributeAccessIssue]


def run_without(placement: Placement, model: Path, switches: tuple[str, ...]) -> dict[str, Steps]:
    """The first step of `run_cases` in ranks in which these methods of FSDP2 do nothing."""
    for switch in switches:
        setattr(FSDPModule, switch, lambda self, value: None)
    return run_cases(placement, model, 1, None)


def largest_difference(found: dict[str, Steps], expected: dict[str, Steps], *, num_updates: int | None = None) -> float:
    """The norm of a tensor's difference, relative to the norm of the tensor; the largest of all tensors and updates.

    num_updates: how many of each case count. None: all of them.
    """
    largest = 0.0
    for name, steps in expected.items():
        updates = steps.gradients[:num_updates]
        assert len(found[name].gradients[:num_updates]) == len(updates) > 0
        for ours, theirs in zip(found[name].gradients, updates, strict=False):
            assert ours.keys() == theirs.keys()
            assert any(value.any() for value in theirs.values())
            for key, value in theirs.items():  # while a critic's last layer is 0, so are the gradients of the others
                difference, norm = float((ours[key] - value).norm()), float(value.norm())
                largest = max(largest, difference / norm if norm else math.inf if difference else 0.0)
    return largest


def largest_difference_of_all(found: dict[str, Steps], expected: dict[str, Steps]) -> float:
    """The norm of the difference of a whole gradient, relative to the norm of the gradient; the largest of all
    updates."""
    return max(
        _norm(ours[key] - value for key, value in theirs.items()) / _norm(theirs.values())
        for name, steps in expected.items()
        for ours, theirs in zip(found[name].gradients, steps.gradients, strict=True)
    )


def _norm(tensors: Iterable[torch.Tensor]) -> float:
    return math.sqrt(sum(float(tensor.norm()) ** 2 for tensor in tensors))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("gradients") / "model")


@pytest.fixture(scope="module")
def expected(model: Path) -> Iterator[dict[str, Steps]]:
    """In one process of one thread, like a rank: the number of threads also changes the order of sums."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield run_cases(ONE_PROCESS, model, 10, None)
    torch.set_num_threads(num_threads)


@pytest.mark.cluster
@pytest.mark.parametrize(("size", "shard_size"), [(1, 0), (2, 0), (4, 0), (4, 2)])
def test_gradients_of_ranks_are_those_of_one_process(
    model: Path, expected: dict[str, Steps], size: int, shard_size: int
) -> None:
    found = on_ranks(size, run_cases, model, 10, expected, shard_size=shard_size)
    of_tensor, of_all = largest_difference(found, expected), largest_difference_of_all(found, expected)
    print(f"{size} ranks: {of_all:.2g} of a gradient's norm, {of_tensor:.2g} of a tensor's")
    assert of_all < 1e-6
    assert of_tensor < 2e-6  # the terms of a tensor's gradient can cancel, so that its rounding is larger


def held_frac(placement: Placement, model: Path) -> float:
    """The fraction of the float32 weights that this rank keeps."""
    weights = make_trainer(model, **CASES["grpo"], placement=placement).optimizer.masters.values()
    assert all(isinstance(value, DTensor) for value in weights)
    held = sum(value.to_local().numel() for value in weights if isinstance(value, DTensor))
    return held / sum(value.numel() for value in weights)


@pytest.mark.cluster
@pytest.mark.parametrize(("shard_size", "copies"), [(0, 1), (2, 2), (3, 1)])
def test_a_rank_keeps_its_share_of_one_copy_of_the_weights(model: Path, shard_size: int, copies: int) -> None:
    """If the ranks cannot be divided into groups of the size, they share one copy."""
    found = on_ranks(4, held_frac, model, shard_size=shard_size)
    assert found == pytest.approx(copies / 4, rel=0.1)


@pytest.mark.cluster
def test_without_the_sum_over_ranks_gradients_are_wrong_or_refused(model: Path, expected: dict[str, Steps]) -> None:
    """FSDP2 averages by default. The first switch alone asks for an operation that gloo does not have."""
    averaged = on_ranks(2, run_without, model, (FORCE_SUM, DIVIDE))
    assert largest_difference(averaged, expected, num_updates=1) == pytest.approx(0.5, rel=1e-3)
    with pytest.raises(Exception, match="PREMUL_SUM"):
        on_ranks(2, run_without, model, (FORCE_SUM,))
