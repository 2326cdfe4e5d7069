"""A case of a certificate file: another project's options and arrays, and the outputs of its own code.

Axes: N rollouts, C columns of the padded batch. A batch is flattened row by row, so padding is simply outside the mask.
All numbers are float64: none passes through torch's default dtype.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from ansatz.objectives.projects.options import Options, merged


@dataclass(frozen=True, slots=True)
class Case:
    """options: those that the case sets, over `defaults`, the project's defaults in force for it."""

    id: str
    family: str
    project: str
    options: Options
    defaults: Mapping[str, Any]
    inputs: dict[str, Any]
    outputs: dict[str, Any]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        defaults = cast(dict[str, Any], data.get("knob_defaults") or {})
        options = Options(merged(defaults, data.get("knobs") or {}))
        return cls(data["id"], data["family"], data["peer"], options, defaults, data["inputs"], data["outputs"])

    def array(self, name: str) -> Tensor:
        """Return an input in float64, in the shape that it has there."""
        return float64(self.inputs[name])

    def optional(self, name: str) -> Tensor | None:
        return self.array(name) if self.inputs.get(name) is not None else None

    def flat(self, name: str) -> Tensor | None:
        value = self.optional(name)
        return None if value is None else value.reshape(-1)


def float64(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def error(ours: Any, expected: Any, mask: Tensor | None = None) -> float:
    """Return the largest absolute difference over max(1, largest |expected|); inf for a different shape or a nan.

    mask: where an N x C array is compared.
    """
    if isinstance(expected, Mapping):
        parts = cast(Mapping[str, Any], expected)
        return max((error(ours.get(key), value, mask) for key, value in parts.items()), default=0.0)
    if ours is None:
        return math.inf
    want = torch.as_tensor(expected, dtype=torch.float64)
    got = torch.as_tensor(ours, dtype=torch.float64).detach()
    if got.shape != want.shape:
        return math.inf
    if mask is not None and want.shape == mask.shape:
        got, want = got[mask], want[mask]
    if want.numel() == 0:
        return 0.0
    gap = (got - want).abs().max().item() / max(1.0, want.abs().max().item())
    return math.inf if math.isnan(gap) else gap
