"""Where a sampler gets the policy's weights from.

The trainer hands samplers a `WeightSource` instead of its module, so that a sampler may run in another thread, process
or machine. A sampler that shares the trainer's module recognises `LiveWeights` and copies nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ansatz.models import lora
from ansatz.models.load import Policy


class WeightSource(Protocol):
    """One version of a policy's weights."""

    @property
    def version(self) -> int:
        """The number of optimizer steps that led to these weights."""
        ...

    def tensors(self) -> Mapping[str, Tensor]:
        """The weights by their names in the Hugging Face folder, each tied weight once, adapters merged."""
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
        """The module's own tensors. With adapters: new float32 tensors on the CPU."""
        parameters = dict(self.policy.model.named_parameters())
        return parameters if self.policy.base is None else lora.merge_adapters(self.policy, parameters)
