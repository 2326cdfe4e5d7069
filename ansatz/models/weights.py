"""Where a sampler gets the policy's weights from.

The trainer hands samplers a `WeightSource` instead of its module, so that a sampler may run in another thread, process
or machine. A sampler that shares the trainer's module recognises `LiveWeights` and copies nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from safetensors.torch import save_file
from torch import Tensor, uint8

from ansatz.errors import ModelError
from ansatz.models import lora
from ansatz.models.load import Policy


class WeightSource(Protocol):
    """One version of a policy's weights."""

    @property
    def version(self) -> int:
        """The number of optimizer steps that led to these weights."""
        ...

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the weights by their names in the Hugging Face folder, each tied weight once, adapters merged."""
        ...

    def trained(self) -> Mapping[str, Tensor]:
        """Return the parameters that training changes, by their names in the policy's module; with adapters, only
        these.

        `load_trained` gives them to a copy of the policy, which then computes the same bits.
        """
        ...


@runtime_checkable
class SelfStoringWeights(Protocol):
    """Weights that other processes hold, and that are best written to files where they are."""

    @property
    def num_bytes(self) -> int:
        """The approximate size of the files that `store` writes."""
        ...

    def store(self, folder: Path, *, max_shard_bytes: int) -> str:
        """Store the trained parameters as `store_tensors` does, in the type that the model computes in."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWeights:
    """The weights of a policy in this process, without a copy.

    An optimizer step changes them in place. Load them before the next one: afterwards they no longer are the weights
    of `version`.
    """

    policy: Policy
    version: int

    def tensors(self) -> dict[str, Tensor]:
        """Return the module's own tensors. With adapters: new float32 tensors on the CPU."""
        parameters = dict(self.policy.model.named_parameters())
        if (base := self.policy.base) is None:
            return parameters
        return lora.merge_adapters(self.policy, dict(base.named_parameters()), parameters)

    def trained(self) -> dict[str, Tensor]:
        """Return the module's own tensors."""
        return _trained(self.policy)


def load_trained(policy: Policy, tensors: Mapping[str, Tensor]) -> None:
    """Give a policy the parameters that `WeightSource.trained` of a copy of it returned, in place.

    ModelError, before anything has changed, if names or shapes differ.
    """
    parameters = _trained(policy)
    expected = {name: tuple(value.shape) for name, value in parameters.items()}
    stored = {name: tuple(value.shape) for name, value in tensors.items()}
    if stored != expected:
        wrong = sorted(name for name in stored.keys() | expected.keys() if stored.get(name) != expected.get(name))
        raise ModelError(
            f"the stored weights are not those of this model: {wrong[0]} has shape {stored.get(wrong[0])}, expected "
            f"{expected.get(wrong[0])}. Both must be built from the same model folder and the same model.lora."
        )
    for name, parameter in parameters.items():
        parameter.data.copy_(tensors[name])


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of names, types and bits of the tensors: equal for equal weights, whoever computes it."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        _add_to_digest(digest, name, value.detach().cpu().contiguous())
    return digest.hexdigest()[:16]


def store_tensors(tensors: Iterable[tuple[str, Tensor]], folder: Path, *, max_shard_bytes: int) -> str:
    """Write tensors into safetensors files of at most max_shard_bytes each (or one tensor), and return the fingerprint.

    tensors: with their names, in ascending order of names. Only one file's tensors are held at a time.
    """
    digest, shard, number = hashlib.sha256(), dict[str, Tensor](), 1
    for name, value in tensors:
        value = value.detach().cpu().contiguous()
        _add_to_digest(digest, name, value)
        if shard and sum(each.nbytes for each in shard.values()) + value.nbytes > max_shard_bytes:
            save_file(shard, folder / f"model-{number:05d}.safetensors")
            shard, number = {}, number + 1
        shard[name] = value
    save_file(shard, folder / f"model-{number:05d}.safetensors")
    return digest.hexdigest()[:16]


def _add_to_digest(digest: Any, name: str, value: Tensor) -> None:
    digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
    digest.update(value.view(-1).view(uint8).numpy().data)


def _trained(policy: Policy) -> dict[str, Tensor]:
    return {name: value for name, value in policy.model.named_parameters() if value.requires_grad}
