"""The optimizers that `train.optimizer` can name. docs/memory.md counts the bytes of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ansatz.config.fields import FractionBelowOne, Rate
from ansatz.registry import Registry
from ansatz.train.optim import MasterAdamW
from ansatz.train.optim_8bit import Adam8bit, package
from ansatz.train.optim_offload import OffloadedAdamW

OPTIMIZERS: Registry[Callable[..., MasterAdamW]] = Registry("train.optimizer")
"""Functions of (model, dtype) whose keyword-only parameters are the settings of the optimizer."""

Betas = tuple[FractionBelowOne, FractionBelowOne]


def bind_optimizer(settings: Mapping[str, Any]) -> Callable[[Any, torch.dtype], MasterAdamW]:
    """The function of (model, compute type) that builds the optimizer of {name: NAME, ...settings}.

    ConfigError for an unknown name or setting. MissingExtraError if its package is not installed.
    """
    name = settings.get("name", "adamw")
    if name == "adamw_8bit":
        package()
    return OPTIMIZERS.bind(name, {key: value for key, value in settings.items() if key != "name"})


@OPTIMIZERS.register()
def adamw(model: Any, dtype: torch.dtype, *, betas: Betas = (0.9, 0.99), weight_decay: Rate = 0.0) -> MasterAdamW:
    """Masters, gradient sums and both moments are float32, all on the device of the model.

    betas: decay rates of the two moments. weight_decay: fraction of a weight that is subtracted per step, times the
    learning rate.
    """
    return MasterAdamW(model, dtype=dtype, betas=betas, weight_decay=weight_decay)


@OPTIMIZERS.register()
def adamw_8bit(model: Any, dtype: torch.dtype, *, betas: Betas = (0.9, 0.99), weight_decay: Rate = 0.0) -> MasterAdamW:
    """Masters and gradient sums are float32, both moments have 8 bits."""
    return Adam8bit(model, dtype=dtype, betas=betas, weight_decay=weight_decay)


@OPTIMIZERS.register()
def adamw_offload(
    model: Any, dtype: torch.dtype, *, betas: Betas = (0.9, 0.99), weight_decay: Rate = 0.0
) -> MasterAdamW:
    """Like adamw, but in host memory: the device holds the compute weights and the gradients of one microbatch."""
    return OffloadedAdamW(model, dtype=dtype, betas=betas, weight_decay=weight_decay)
