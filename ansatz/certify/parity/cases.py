"""A case of a certificate file: knobs and arrays of another project, and what its own code made of them.

Axes: N rollouts, C columns of the padded batch. A batch is flattened row by row, so padding is simply outside the mask.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Case:
    id: str
    family: str
    peer: str
    knobs: dict[str, Any]
    inputs: dict[str, Any]
    outputs: dict[str, Any]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        knobs = merged(data.get("knob_defaults") or {}, data.get("knobs") or {})
        return cls(data["id"], data["family"], data["peer"], knobs, data["inputs"], data["outputs"])

    def array(self, name: str) -> Tensor:
        """An input in float64, as it is shaped there."""
        return torch.tensor(self.inputs[name], dtype=torch.float64)

    def optional(self, name: str) -> Tensor | None:
        return self.array(name) if self.inputs.get(name) is not None else None

    def flat(self, name: str) -> Tensor | None:
        value = self.optional(name)
        return None if value is None else value.reshape(-1)


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """`new` over `old`, nested dictionaries key by key."""
    out = dict(old)
    for key, value in new.items():
        nested = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merged(out[key], cast(dict[str, Any], value)) if nested else value
    return out


def error(ours: Any, expected: Any, mask: Tensor | None = None) -> float:
    """Largest absolute difference over max(1, largest |expected|); inf for another shape or a nan.

    mask: where an N x C array counts.
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
