"""The optimisers that `train.optimizer` names; docs/memory.md counts the bytes of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ansatz.config.fields import FractionBelowOne, Rate
from ansatz.registry import Registry
from ansatz.train.optim import MasterAdamW
from ansatz.train.optim_8bit import Adam8bit, bitsandbytes
from ansatz.train.optim_offload import OffloadedAdamW

OPTIMIZERS: Registry[Callable[..., MasterAdamW]] = Registry("train.optimizer")
"""Functions of (model, dtype) whose keyword-only parameters are the optimiser's settings."""

Betas = tuple[FractionBelowOne, FractionBelowOne]


def bind_optimizer(settings: Mapping[str, Any]) -> Callable[[Any, torch.dtype], MasterAdamW]:
    """What {name: NAME, ...settings} makes of a model and its compute type.

    Raises ConfigError for an unknown name or setting, MissingExtraError where the named one's package is not installed.
    """
    name = settings.get("name", "adamw")
    if name == "adamw_8bit":
        bitsandbytes()
    return OPTIMIZERS.bind(name, {key: value for key, value in settings.items() if key != "name"})


@OPTIMIZERS.register()
def adamw(model: Any, dtype: torch.dtype, *, betas: Betas = (0.9, 0.99), weight_decay: Rate = 0.0) -> MasterAdamW:
    """Masters, gradient sums and both moments in float32, all on the model's device."""
    return MasterAdamW(model, dtype=dtype, betas=betas, weight_decay=weight_decay)


@OPTIMIZERS.register()
def adamw_8bit(model: Any, dtype: torch.dtype, *, betas: Betas = (0.9, 0.99), weight_decay: Rate = 0.0) -> MasterAdamW:
    """Masters and gradient sums in float32, both moments in 8 bits."""
    return Adam8bit(model, dtype=dtype, betas=betas, weight_decay=weight_decay)


@OPTIMIZERS.register()
def adamw_offload(
    model: Any, dtype: torch.dtype, *, betas: Betas = (0.9, 0.99), weight_decay: Rate = 0.0
) -> MasterAdamW:
    """As adamw, but in host memory: the device holds the compute weights and one slice's gradients."""
    return OffloadedAdamW(model, dtype=dtype, betas=betas, weight_decay=weight_decay)
