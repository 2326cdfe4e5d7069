"""Batches whose numbers depend only on the token and its rollout, wherever it is in the batch."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import torch
from torch import Tensor

from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.train.batch import LossBatch, TrainBatch, build_batch
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample

CPU = torch.device("cpu")


def some_samples(*, groups: int = 4, size: int = 3, seed: int = 0) -> list[TrainSample]:
    """Samples of different lengths. Response token = 1000 + 100 * group + 10 * member + index, so each is known."""
    draw = random.Random(seed)
    samples: list[TrainSample] = []
    for group in range(groups):
        prompt = [draw.randrange(2, 50) for _ in range(draw.randint(1, 7))]
        for member in range(size):
            length = draw.randint(1, 9)
            samples.append(
                TrainSample(
                    prompt_ids=prompt,
                    token_ids=[1000 + 100 * group + 10 * member + index for index in range(length)],
                    behavior_logps=[-draw.random() for _ in range(length)],
                    group=group,
                    reward=float(draw.random() < 0.5) + 0.1 * member,
                    truncated=draw.random() < 0.3,
                    components=(draw.random(), draw.random()),
                )
            )
    return samples


def objective_of(preset: str, **changes: Any) -> Objective:
    return build_objective({"preset": preset, "entropy_coef": 0.01, **changes}, max_response_tokens=9)


def by_token(batch: TrainBatch, *, salt: int, scale: float = 0.3) -> Tensor:
    """A number a token that depends on the token and its rollout alone, wherever it stands in the batch."""
    token_T = batch.packed.token_T.double()
    return (torch.sin(token_T * (12.9898 + salt)) * 43758.5453).frac().float() * scale


def whole_batch(samples: list[TrainSample], objective: Objective) -> LossBatch:
    """Old, reference and behavior log-probs, values and baselines from the tokens themselves."""
    packed = pack_rollouts(samples, device=CPU)
    bare = build_batch(packed, build_objective({"preset": "reinforce"}, max_response_tokens=9))
    old_T, ref_T, value_T = (by_token(bare, salt=salt) * packed.sampled_mask_T for salt in (1, 2, 3))
    behavior_T = old_T + by_token(bare, salt=4, scale=0.05) * packed.sampled_mask_T
    packed = dataclasses.replace(packed, behavior_logp_T=behavior_T)
    group_N = packed.group_N.double()
    baseline_N = (torch.sin(group_N * 7.1) * 0.5).float()
    batch = build_batch(packed, objective, old_logp_T=old_T, ref_logp_T=ref_T, value_T=value_T, baseline_N=baseline_N)
    assert isinstance(batch, LossBatch)
    return batch


def before_update(batch: TrainBatch) -> TrainBatch:
    """The batch without old log-probs."""
    return TrainBatch(**{field.name: getattr(batch, field.name) for field in dataclasses.fields(TrainBatch)})
