"""Conversion of AdamW's moments between float32 and 8 bits, for a run whose optimizer is changed.

A state is flat, as a checkpoint holds it: "KIND/NAME" with the name of a parameter. The kinds of moments in float32 are
exp_avg and exp_avg_sq; in 8 bits (see `optim_8bit`) they are state1 and state2, with their scales absmax1 and absmax2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ansatz.errors import install_command
from ansatz.models.four_bit import bitsandbytes

BLOCK, SMALLEST = 256, 4096
"""Values that share a scale, and the size of the smallest parameter with moments of 8 bits, as in bitsandbytes."""
_KINDS = (("exp_avg", "state1", "absmax1", True), ("exp_avg_sq", "state2", "absmax2", False))
"""For each moment: its kind in float32 and in 8 bits, the kind of its scales, and whether its levels are signed."""


def float_moments(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the state to float32 moments. A state in float32 is returned as it is."""
    # bitsandbytes counts steps with an integer, torch with a float.
    converted = {key: value.float() if key.startswith("step/") else value for key, value in state.items()}
    for kind, kind_8bit, scales, signed in _KINDS:
        for key in [key for key in converted if key.startswith(f"{kind_8bit}/")]:
            name = key.partition("/")[2]
            value, scale = converted.pop(key), converted.pop(f"{scales}/{name}", None)
            if scale is not None:
                functional = _functional()
                value = functional.dequantize_blockwise(value, absmax=scale, code=_levels(signed), blocksize=BLOCK)
            converted[f"{kind}/{name}"] = value.float()
    return converted


def moments_of_8_bits(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the state to moments of 8 bits, except for small parameters. A state in 8 bits is returned as it is."""
    converted = dict(state)
    for kind, kind_8bit, scales, signed in _KINDS:
        for key in [key for key in converted if key.startswith(f"{kind}/")]:
            name, value = key.partition("/")[2], converted.pop(key)
            if value.numel() >= SMALLEST:
                levels = _levels(signed)
                value, about = _functional().quantize_blockwise(value.float().cpu(), code=levels, blocksize=BLOCK)
                converted[f"{scales}/{name}"] = about.absmax
            converted[f"{kind_8bit}/{name}"] = value
    return converted


def _levels(signed: bool) -> Tensor:
    return _functional().create_dynamic_map(signed=signed).to(torch.float32)


def _functional() -> Any:
    bitsandbytes(
        advice="the checkpoint or the recipe has moments of 8 bits, which need the package bitsandbytes. Install "
        f"it with: {install_command('adamw8bit')}"
    )
    import bitsandbytes.functional as functional  # pyright: ignore[reportMissingImports]

    return functional
