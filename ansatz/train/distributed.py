"""DistributedTrainer: the `Trainer` protocol, fanned out to ranks that live in workers of a cluster.

The loop stays in the driver. Each rank hosts a `LocalTrainer`, or a `RewardTrainer`, with its share of the weights
(`train.rank_host`). Every rank gets every call with the same arguments. Once all ranks have given the same answer, the
first rank's answer counts.

If a rank dies, fails or stalls, all ranks are killed and started again. They load the newest checkpoint of the stage
and repeat the later steps from their samples, which the driver keeps. The loop notices nothing, so workers that sample
rollouts continue meanwhile. The same number of ranks repeats the same bits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from ansatz.cluster.health import RestartBudget
from ansatz.errors import ModelError, TrainerError
from ansatz.links import make_folder, remove
from ansatz.train import checkpoint
from ansatz.train.rank_group import RankGroup, RanksLost
from ansatz.train.rank_host import RankAnswer, Status
from ansatz.train.sample import TrainSample
from ansatz.train.trainer import EarlierWeights, Skipped, StepReport, TokenLogps


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBatch:
    """A batch whose tensors the ranks hold, and the samples that it is made of."""

    samples: tuple[TrainSample, ...]
    baseline_of_group: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Update:
    """An update that was made, so that it can be repeated."""

    batch: RankBatch
    step: int
    settings: tuple[int, bool, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """The current weights of the ranks, as a `WeightSource`. Valid until the next update.

    call: calls the ranks. folder: where they can write for the driver.
    """

    version: int
    num_bytes: int
    call: Callable[..., RankAnswer]
    folder: Path

    def store(self, folder: Path, *, max_shard_bytes: int) -> str:
        return self.call("store_weights", folder, max_shard_bytes).own

    def trained(self) -> dict[str, Tensor]:
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            self.store(Path(folder), max_shard_bytes=max(1, self.num_bytes))
            return {name: value for file in Path(folder).iterdir() for name, value in load_file(file).items()}

    def tensors(self) -> dict[str, Tensor]:
        """Raise ModelError for a model with adapters, because the ranks do not gather its base here."""
        trained = self.trained()
        if any("lora" in name for name in trained):
            raise ModelError("trainer ranks merge adapters only in their checkpoints. Load one of these.")
        return trained


class DistributedTrainer:
    """stage_folder: the folder of the stage's checkpoints. All ranks can read and write it.

    tokenizer: the policy's. The trainer starts its ranks when it is made.
    """

    policy = None

    def __init__(
        self, group: RankGroup, *, tokenizer: Any, stage_folder: Path, budget: RestartBudget | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.on_skip: Callable[[Skipped], None] = lambda skipped: None
        self.on_event: Callable[[int, str], None] = lambda step, text: None
        self._group, self._folder, self._budget = group, stage_folder, budget or RestartBudget()
        self._scratch = scratch_folder(stage_folder)
        remove(self._scratch, ignore_errors=True)
        make_folder(self._scratch, private=True)
        self._lr_scale = 1.0
        self._batch: RankBatch | None = None
        self._updates: list[_Update] = []
        self._has_state = self._busy = False
        self._step = 0
        self._run(lambda: None)

    @property
    def version(self) -> int:
        return self._status.version

    @property
    def changes(self) -> int:
        """Number of changes, or -1 while the ranks compute: they cannot save then, even if no weight has changed
        yet."""
        return -1 if self._busy else self._status.changes

    @property
    def needs_greedy(self) -> bool:
        return self._status.needs_greedy

    @property
    def device(self) -> torch.device:
        return torch.device(self._status.device)

    @property
    def published_bytes(self) -> int:
        return self._status.published_bytes

    @property
    def checkpoint_bytes(self) -> int:
        return self._status.checkpoint_bytes

    @property
    def weights_bytes(self) -> int:
        return self._status.weights_bytes

    def batch(
        self, samples: Sequence[TrainSample], *, baseline_of_group: Mapping[int, float] | None = None
    ) -> RankBatch:
        batch = RankBatch(samples=tuple(samples), baseline_of_group=dict(baseline_of_group or {}))
        if self.needs_greedy and (missing := {sample.group for sample in samples} - batch.baseline_of_group.keys()):
            raise KeyError(min(missing))
        self._batch = None
        self._call("batch", batch.samples, batch.baseline_of_group)
        self._batch = batch
        return batch

    def check_against(self, load: Callable[[], EarlierWeights], batch: RankBatch, *, step: int) -> Mapping[str, float]:
        self._use(batch)
        return self._call("check_against", load, step).agreed

    def update(self, batch: RankBatch, *, step: int, seed: int = 0, check_alignment: bool = False) -> StepReport:
        self._use(batch)
        self._step, settings = step, (seed, check_alignment, self._lr_scale)
        self._forget_saved()
        answer = self._call("update", step, *settings)
        self._updates.append(_Update(batch=batch, step=step, settings=settings))
        self._has_state, self._batch = True, None
        for skipped in answer.own:
            self.on_skip(skipped)
        return answer.agreed

    def measure_demonstrations(self, samples: Sequence[TrainSample]) -> Mapping[str, float]:
        return self._call("measure_demonstrations", tuple(samples)).agreed

    def token_logps(self, samples: Sequence[TrainSample], *, of_reference: bool = False) -> list[TokenLogps]:
        return self._call("token_logps", tuple(samples), of_reference).agreed

    def response_logps(self, samples: Sequence[TrainSample], temperatures: Sequence[float]) -> list[list[float]]:
        return self._call("response_logps", tuple(samples), tuple(temperatures)).agreed

    def score_samples(self, samples: Sequence[TrainSample]) -> list[list[float]]:
        """Score samples with a reward model; see `RewardTrainer`."""
        return self._call("score_samples", tuple(samples)).own

    def set_lr_scale(self, scale: float) -> None:
        self._lr_scale = scale

    def weights(self) -> RankWeights:
        return RankWeights(
            version=self.version, num_bytes=self.published_bytes, call=self._call, folder=self._scratch.absolute()
        )

    def watch_memory(self) -> Callable[[], float]:
        """Return the peak since the ranks were started, for the rank that needed most."""
        return lambda: self._group.peak_gb

    def save(self, folder: Path) -> None:
        self._call("save", folder.absolute())

    def state(self) -> dict[str, Any]:
        return dict(self._status.state)

    def restore(self, folder: Path, state: Mapping[str, Any]) -> None:
        self._call("restore", folder.absolute(), dict(state))
        self._has_state = True

    def close(self) -> None:
        self._group.close()
        remove(self._scratch, ignore_errors=True)

    @property
    def _status(self) -> Status:
        assert self._group.status is not None, "the ranks have started"
        return self._group.status

    def _use(self, batch: RankBatch) -> None:
        """Have the ranks hold this batch. They hold only the last one that was built."""
        if self._batch is not batch:
            self._call("batch", batch.samples, batch.baseline_of_group)
            self._batch = batch

    def _call(self, method: str, *args: Any) -> RankAnswer:
        return self._run(lambda: self._group.call(method, *args))

    def _run(self, work: Callable[[], Any]) -> Any:
        """Return work(), called again after each restart of the ranks. Raise TrainerError when the budget of restarts
        is spent."""
        self._busy = True
        try:
            while True:
                try:
                    if not self._group.running:
                        self._group.start()
                        self._catch_up()
                    return work()
                except RanksLost as lost:
                    self._group.kill()
                    self._pause(str(lost))
        finally:
            self._busy = False

    def _pause(self, cause: str) -> None:
        delay = self._budget.delay_after_death(self._group.now())
        if delay is None:
            raise TrainerError(
                f"the trainer's ranks are lost: {cause}. The budget of {self._budget.restarts} restarts within an hour "
                "is spent. The last checkpoint is intact. Remove the cause, then continue with --resume."
            )
        self.on_event(self._step, f"{cause}. All ranks are started again in {delay:g} s.")
        self._group.pause(delay)

    def _catch_up(self) -> None:
        """Bring new ranks to the state of the lost ones at the beginning of the last call."""
        if self._has_state and (latest := checkpoint.latest(self._folder)) is not None:
            self._group.call("restore", latest.absolute(), checkpoint.trainer_state(latest))
        self._forget_saved()
        for update in self._updates:
            self._group.call("batch", update.batch.samples, update.batch.baseline_of_group)
            self._group.call("update", update.step, *update.settings)
        if self._batch is not None:
            self._group.call("batch", self._batch.samples, self._batch.baseline_of_group)
        if self._updates:
            first, last = self._updates[0].step, self._updates[-1].step
            self.on_event(self._step, f"the ranks have repeated steps {first} to {last}.")

    def _forget_saved(self) -> None:
        """Forget the updates that the newest checkpoint contains."""
        if (latest := checkpoint.latest(self._folder)) is not None:
            saved = checkpoint.step_of(latest)
            self._updates = [update for update in self._updates if update.step > saved]


def scratch_folder(stage_folder: Path) -> Path:
    """Return the folder that ranks write to, so that the driver can move or read the files."""
    return stage_folder / ".ranks"
