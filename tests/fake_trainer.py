"""FakeTrainer: the fake of the trainer seam, for tests of loops. It imports no model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ansatz.errors import AlignmentError
from ansatz.json_text import parse_json
from ansatz.track.measurements import Measurement, mean
from ansatz.train.sample import TrainSample
from ansatz.train.trainer import TRAINING, EarlierWeights, Skipped, StepReport, TokenLogps, incomplete

_FILE = "fake_policy.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class OneNumber:
    """A `WeightSource` with a single number."""

    version: int
    value: float

    def tensors(self) -> dict[str, Tensor]:
        return {"value": torch.tensor([self.value])}

    def trained(self) -> dict[str, Tensor]:
        return self.tensors()


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeBatch:
    """The samples of a step, and the baselines that came with them."""

    samples: tuple[TrainSample, ...]
    baseline_of_group: Mapping[int, float]


class FakeTrainer:
    """A policy of one number. Every update adds the mean reward of the batch times the scale of the learning rate.
    The advantage of a rollout is its reward.

    updates: every batch that it was updated on, by step. sampler_gap: what the alignment check finds, in nats.
    tokenizer: what it offers for rendering prompts.
    """

    policy = None
    device = torch.device("cpu")

    def __init__(
        self,
        *,
        updates_per_step: int = 1,
        needs_greedy: bool = False,
        sampler_gap: float = 0.0,
        max_logprob_gap: float = 1.05,
        tokenizer: Any = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.on_skip: Callable[[Skipped], None] = lambda skipped: None
        self.on_event: Callable[[int, str], None] = lambda step, text: None
        self.version, self.value, self.lr_scale = 0, 0.0, 1.0
        self.needs_greedy = needs_greedy
        self.updates: dict[int, FakeBatch] = {}
        self._updates_per_step = updates_per_step
        self._gap, self._max_gap = sampler_gap, max_logprob_gap

    @property
    def changes(self) -> int:
        return self.version

    def batch(
        self, samples: Sequence[TrainSample], *, baseline_of_group: Mapping[int, float] | None = None
    ) -> FakeBatch:
        baselines = dict(baseline_of_group or {})
        if self.needs_greedy and (missing := {sample.group for sample in samples} - baselines.keys()):
            raise KeyError(min(missing))
        return FakeBatch(samples=tuple(samples), baseline_of_group=baselines)

    def update(self, batch: FakeBatch, *, step: int, seed: int = 0, check_alignment: bool = False) -> StepReport:
        measured = {"align/mean_exp_gap": mean(math.exp(self._gap), 1)}
        if check_alignment and math.exp(self._gap) > self._max_gap:
            raise AlignmentError(f"step {step}: sampler and trainer disagree about log-probs by {self._gap} nats.")
        rewards = [sample.reward for sample in batch.samples]
        for _ in range(self._updates_per_step):
            self.value += self.lr_scale * sum(rewards) / len(rewards)
            self.version += 1
        self.updates[step] = batch
        response = sum(len(sample.token_ids) for sample in batch.samples)
        prompt = sum(len(sample.prompt_ids) for sample in batch.samples)
        return StepReport(
            measurements={
                **measured,
                "train/tokens": Measurement(float(response)),
                "train/loss": mean(0.0, self._updates_per_step),
                "train/lr": Measurement(self.lr_scale),
                "train/early_stops": Measurement(0.0),
            },
            num_updates=self._updates_per_step,
            num_tokens=(prompt + response) * self._updates_per_step,
            rollouts={place: {"advantage": reward} for place, reward in enumerate(rewards)},
        )

    def check_against(self, load: Callable[[], EarlierWeights], batch: FakeBatch, *, step: int) -> dict[str, float]:
        return {}

    def measure_demonstrations(self, samples: Sequence[TrainSample]) -> dict[str, float]:
        return {}

    def response_logps(self, samples: Sequence[TrainSample], temperatures: Sequence[float]) -> list[list[float]]:
        return [[-float(len(sample.token_ids))] * len(temperatures) for sample in samples]

    def token_logps(self, samples: Sequence[TrainSample], *, of_reference: bool = False) -> list[TokenLogps]:
        """Return the negative number of the policy for each token, once more for each update, and no entropy."""
        logps = [[-float(self.version)] * len(sample.token_ids) for sample in samples]
        return [] if of_reference else [TokenLogps(each, [0.0] * len(each)) for each in logps]

    def set_lr_scale(self, scale: float) -> None:
        self.lr_scale = scale

    def weights(self) -> OneNumber:
        return OneNumber(version=self.version, value=self.value)

    def save(self, folder: Path) -> None:
        (folder / TRAINING / _FILE).write_text(json.dumps({"value": self.value}), encoding="utf-8")

    @property
    def published_bytes(self) -> int:
        return 4

    def watch_memory(self) -> Callable[[], float]:
        return lambda: 0.0

    def close(self) -> None:
        """Nothing was started."""

    @property
    def checkpoint_bytes(self) -> int:
        return len(json.dumps({"value": self.value}))

    @property
    def weights_bytes(self) -> int:
        return 0

    def state(self) -> dict[str, Any]:
        return {"version": self.version}

    def restore(self, folder: Path, state: Mapping[str, Any]) -> None:
        try:
            stored = parse_json((folder / TRAINING / _FILE).read_bytes(), own=True)
            value, version = float(stored["value"]), state["version"]
        except (OSError, TypeError, ValueError, KeyError) as error:
            raise incomplete(folder, error) from error
        self.value, self.version = value, version
