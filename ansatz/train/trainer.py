"""The seam between a training loop and the model that it trains: the protocol of trainers.

A trainer turns samples into a batch, and a batch into optimizer steps. Samplers get its weights through a
`WeightSource`, never as a module, so that sampling and training can live in different processes. `LocalTrainer` trains
a model in this process, `DistributedTrainer` on ranks in other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard, TypeVar, runtime_checkable

import torch
from torch import Tensor

from ansatz.errors import CheckpointError
from ansatz.models.load import Policy
from ansatz.models.weights import WeightSource
from ansatz.track.measurements import Measurements, values
from ansatz.train.sample import TrainSample

TRAINING = "training"
"""The subfolder of a checkpoint for all files that only training needs. Without it, the folder is the model."""

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """The outcome of the optimizer steps on one batch.

    measurements: under the names of docs/metrics.md, merged over minibatches and epochs.
    num_updates: optimizer steps. num_tokens: prompt and response tokens of all minibatches, once for each epoch.
    rollouts: figures of each rollout in its last update (`measure.measure_rollouts`), by its place in the samples.
    """

    measurements: Measurements
    num_updates: int
    num_tokens: int
    rollouts: Mapping[int, Mapping[str, float]] = field(default_factory=dict[int, Mapping[str, float]])

    @property
    def metrics(self) -> dict[str, float]:
        return values(self.measurements)


class TokenLogps(NamedTuple):
    """Log-prob and entropy, in nats, of each token of a response; 0 for a forced token."""

    logps: Sequence[float]
    entropies: Sequence[float]


class Checkpointed(Protocol):
    """The part of a trainer that checkpoints use. Between steps, `save` and `state` hold everything."""

    @property
    def changes(self) -> int:
        """Number of changes of the weights that have begun. As long as it stays equal, the weights are unchanged."""
        ...

    @property
    def checkpoint_bytes(self) -> int:
        """Approximate size of the files that `save` writes."""
        ...

    @property
    def weights_bytes(self) -> int:
        """The part of `checkpoint_bytes` for the weights of the model, which `save.optimizer` leaves."""
        ...

    def set_lr_scale(self, scale: float) -> None:
        """Multiply every learning rate by `scale` from the next update on. The caller keeps the number, because `state`
        does not contain it."""
        ...

    def save(self, folder: Path) -> None:
        """Write the model into `folder`, as an ordinary Hugging Face folder, and the rest into its subfolder TRAINING.

        The subfolder exists.
        """
        ...

    def state(self) -> dict[str, Any]:
        """Return the small part of the training state, as JSON."""
        ...

    def restore(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Load the results of `save` and `state`, bit for bit.

        Raise CheckpointError, before anything has changed, if the files are incomplete or belong to another model.
        """
        ...


class EarlierWeights(Protocol):
    """An earlier version of the trained weights. policy_version: the number of optimizer steps that led to them."""

    @property
    def policy_version(self) -> int: ...

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...


class Skipped(Protocol):
    """An update that was not made, because its loss or gradient was nan or inf."""

    @property
    def step(self) -> int: ...

    @property
    def cause(self) -> str: ...

    def write(self, folder: Path) -> None:
        """Store the update in a folder of its own. An older folder of that name is replaced.

        Raise OSError if the disk is full.
        """
        ...


@runtime_checkable
class Trainer(Checkpointed, Protocol[Batch]):
    """Updates a policy on batches of samples.

    on_skip: called with each update that is skipped. on_event: called with a step and a sentence about each fault that
    the trainer has survived. The loop sets both.

    Example: `report = trainer.update(trainer.batch(samples), step=1)`.
    """

    on_skip: Callable[[Skipped], None]
    on_event: Callable[[int, str], None]

    @property
    def tokenizer(self) -> Any:
        """The policy's tokenizer."""
        ...

    @property
    def policy(self) -> Policy | None:
        """The policy, if all of it is in this process, so that samplers can share it. None: they need a copy."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of the trained policy."""
        ...

    @property
    def published_bytes(self) -> int:
        """The size of the weights that samplers need."""
        ...

    @property
    def version(self) -> int:
        """The version of the policy: the number of optimizer steps so far."""
        ...

    @property
    def needs_greedy(self) -> bool:
        """Tell whether `batch` needs the reward of a greedy response to each prompt (ReMax)."""
        ...

    def batch(self, samples: Sequence[TrainSample], *, baseline_of_group: Mapping[int, float] | None = None) -> Batch:
        """Compute everything that the update of one step needs, once, with the current policy.

        baseline_of_group: the reward of a greedy response to each group's prompt, if `needs_greedy`.
        """
        ...

    def update(self, batch: Batch, *, step: int, seed: int = 0, check_alignment: bool = False) -> StepReport:
        """Make all optimizer steps on a batch. `version` grows by the number of updates. Steps count from 1.

        seed: deals the prompts into minibatches. check_alignment: raise AlignmentError, before anything has changed,
        if sampler and trainer disagree about the log-probs of tokens that the current version has sampled.
        Raise NonFiniteError for a loss or gradient of nan or inf.
        """
        ...

    def check_against(self, load: Callable[[], EarlierWeights], batch: Batch, *, step: int) -> Mapping[str, float]:
        """Measure alignment with the weights of an earlier version that sampled tokens of the batch.

        load: returns these weights; it can be pickled. Raise AlignmentError if the measure is above the limit.
        """
        ...

    def measure_demonstrations(self, samples: Sequence[TrainSample]) -> Mapping[str, float]:
        """Measure how well the policy predicts demonstrations; see `train.logps`."""
        ...

    def response_logps(self, samples: Sequence[TrainSample], temperatures: Sequence[float]) -> list[list[float]]:
        """Compute the log-prob of each sample's response, in nats, at each temperature, over the whole vocabulary.

        samples: at least one.
        """
        ...

    def token_logps(self, samples: Sequence[TrainSample], *, of_reference: bool = False) -> list[TokenLogps]:
        """Compute the current policy's log-prob and entropy at each response token of each sample.

        of_reference: use the reference of the KL instead; an empty list if there is none.
        """
        ...

    def weights(self) -> WeightSource:
        """Return the policy's current weights, for samplers."""
        ...

    def watch_memory(self) -> Callable[[], float]:
        """Return a function that gives the peak memory of a trainer process since this call, in 10^9 bytes."""
        ...

    def close(self) -> None:
        """End everything that the trainer itself has started. It is not used afterwards."""
        ...


def incomplete(folder: Path, cause: Exception) -> CheckpointError:
    """Return the error for a checkpoint that lacks a file or a part of a file."""
    return CheckpointError(f"{folder} is not a complete checkpoint ({cause}). Resume from another one.")


def trains_policy(trainer: Checkpointed) -> TypeGuard[Trainer[Any]]:
    """Tell whether a trainer trains a policy. On ranks, one class calls those of a policy and those of a reward model,
    whose weights no sampler needs."""
    return isinstance(trainer, Trainer) and trainer.published_bytes > 0
