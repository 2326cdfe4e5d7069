"""AdamW with block-wise quantised moments of 8 bits (Dettmers et al., arXiv:2110.02861), by bitsandbytes.

Each block of 256 values of a moment has one scale, and each value the index of one of 256 levels. Masters and gradient
sums stay float32, so what is saved is the moments' memory: 2 x 1.016 bytes a parameter in place of 8. Parameters of
fewer than 4096 values (norms) keep float32 moments, as the paper has it.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from ansatz.errors import MissingExtraError
from ansatz.train.optim import MasterAdamW

LEVELS = {"qmap1": "dynamic", "qmap2": "udynamic"}
"""The two tables of levels, which every parameter shares: by their key in its state, their names in bitsandbytes."""


class Adam8bit(MasterAdamW):
    """Its state of a parameter: (state1, absmax1) and (state2, absmax2), levels' indices and blocks' scales."""

    def _adam(self, masters: list[Tensor], *, betas: tuple[float, float], weight_decay: float) -> torch.optim.Optimizer:
        return bitsandbytes().optim.AdamW8bit(masters, betas=betas, weight_decay=weight_decay)

    def _moments(self, state: dict[str, Any]) -> dict[str, Tensor]:
        kept = {kind: value for kind, value in state.items() if kind not in LEVELS}
        return {**kept, "step": torch.tensor(kept["step"])} if kept else {}

    def _from_moments(self, moments: dict[str, Tensor]) -> dict[str, Any]:
        levels: dict[str, Tensor] = self.adam.name2qmap  # pyright: ignore[reportAttributeAccessIssue]
        device = moments["state1"].device
        quantised = moments["state1"].dtype == torch.uint8
        tables = {key: levels[name].to(device) for key, name in LEVELS.items()} if quantised else {}
        return {**moments, **tables, "step": int(moments["step"])}


def bitsandbytes() -> Any:
    """The package. Raises MissingExtraError where it is not installed."""
    logging.getLogger("bitsandbytes").setLevel(
        logging.ERROR
    )  # it warns of kernels for inference that nothing here uses
    try:
        import bitsandbytes as package  # pyright: ignore[reportMissingTypeStubs, reportMissingImports]
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "train.optimizer = adamw_8bit needs the package bitsandbytes, which is not installed. Install it with: "
            "pip install 'ansatz-rl[adamw8bit]'. Or take adamw_offload, which needs none."
        ) from error
    return package
