"""AdamW with block-wise quantised moments of 8 bits (Dettmers et al., arXiv:2110.02861), by bitsandbytes.

A block of 256 values of a moment shares one scale, and each value is the index of one of 256 levels. The moments then
take 2 x 1.016 bytes per parameter instead of 8; masters and gradient sums stay float32. Parameters of fewer than 4096
values (norms) keep float32 moments, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ansatz.models.four_bit import bitsandbytes
from ansatz.train.moments import moments_of_8_bits
from ansatz.train.optim import MasterAdamW

LEVELS = {"qmap1": "dynamic", "qmap2": "udynamic"}
"""The two tables of levels, which all parameters share: key in the state of a parameter -> name in bitsandbytes."""


class Adam8bit(MasterAdamW):
    """State of a parameter: (state1, absmax1) and (state2, absmax2), the indices of levels and the scales of blocks."""

    def _adam(self, masters: list[Tensor], *, betas: tuple[float, float], weight_decay: float) -> torch.optim.Optimizer:
        return package().optim.AdamW8bit(masters, betas=betas, weight_decay=weight_decay)

    def _moments(self, state: dict[str, Any]) -> dict[str, Tensor]:
        stored = {kind: value for kind, value in state.items() if kind not in LEVELS}
        return {**stored, "step": torch.tensor(stored["step"])} if stored else {}

    def converted(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return moments_of_8_bits(state)

    def _from_moments(self, moments: dict[str, Tensor]) -> dict[str, Any]:
        levels: dict[str, Tensor] = self.adam.name2qmap  # pyright: ignore[reportAttributeAccessIssue]
        device = moments["state1"].device
        quantised = moments["state1"].dtype == torch.uint8
        tables = {key: levels[name].to(device) for key, name in LEVELS.items()} if quantised else {}
        return {**moments, **tables, "step": int(moments["step"])}


def package() -> Any:
    """The package bitsandbytes. MissingExtraError if it is not installed."""
    return bitsandbytes(
        advice="train.optimizer = adamw_8bit needs the package bitsandbytes, which is not installed. Install it with "
        "pip install 'ansatz-rl[adamw8bit]', or use adamw_offload, which needs no package."
    )
