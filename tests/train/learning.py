"""What tests of a trainer's state share: rows to learn from, and all that it holds."""

from __future__ import annotations

import torch
from tiny_models import some_sequences
from torch import Tensor

from ansatz.train.local import LocalTrainer
from ansatz.train.sample import TrainSample


def rows(step: int) -> list[TrainSample]:
    return [
        TrainSample(
            prompt_ids=[3, 4, 5],
            token_ids=response,
            behavior_logps=[-1.0] * len(response),
            group=index // 2,
            reward=float(index % 2),
        )
        for index, response in enumerate(some_sequences(4, 9, 6, 7, seed=step))
    ]


def everything(trainer: LocalTrainer) -> dict[str, Tensor]:
    out = {f"model/{name}": value for name, value in trainer.policy.model.named_parameters()}
    out |= {f"master/{name}": value for name, value in trainer.optimizer.weights().items()}
    for kind, tensors in trainer.tensors().items():
        out |= {f"{kind}/{name}": value for name, value in tensors.items()}
    return {name: value.detach().clone() for name, value in out.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())
