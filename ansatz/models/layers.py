"""How a decoder layer runs when gradients are needed: with checkpointing, compiled, or both.

Sampling and log-probs without gradients are not affected. transformers' own `gradient_checkpointing_enable` does not
work here: it acts only in training mode, which would switch dropout on, and it removes the cache from a model that
samples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ansatz.errors import ModelError
from ansatz.models.load import ONE_AT_A_TIME, Policy


def configure_layers(policy: Policy, *, checkpointing: bool = False, compiled: bool = False) -> None:
    """Set how the policy's decoder layers run, in place. Copies of the model keep the setting.

    checkpointing: keep only each layer's input for the backward pass, and compute the layer again there. The gradients
        have the same bits.
    compiled: use torch.compile, on the first use of each kind of layer. Results differ by rounding, and microbatches
        run one after the other, because it does not support threads.
    Raise ModelError if transformers does not mark the model's layers.
    """
    if not checkpointing and not compiled:
        return
    layers = checkpointed_layers(policy)
    if not layers:
        raise ModelError(
            f"model.path = {policy.path!r}: transformers marks no layers of {type(policy.model).__name__} for gradient "
            "checkpointing. Remove model.checkpointing and model.compile."
        )
    setattr(policy.model, ONE_AT_A_TIME, compiled)
    for layer in layers:
        layer.forward = _Layer(layer, checkpointing=checkpointing, compiled=compiled)


def checkpointed_layers(policy: Policy) -> list[Any]:
    """Return the layers that transformers marks for gradient checkpointing."""
    from transformers.modeling_layers import GradientCheckpointingLayer  # slow to import (`attention.install`)

    return [module for module in policy.model.modules() if isinstance(module, GradientCheckpointingLayer)]


class _Layer:
    """The forward pass of one layer. It refers only to the module, so that a deep copy of a model refers to its own
    modules."""

    def __init__(self, module: nn.Module, *, checkpointing: bool, compiled: bool) -> None:
        self.module, self.checkpointing, self.compiled = module, checkpointing, compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kind = type(self.module)
        if not torch.is_grad_enabled():
            return kind.forward(self.module, *args, **kwargs)
        run = functools.partial(_compiled(kind) if self.compiled else kind.forward, self.module)
        if not self.checkpointing:
            return run(*args, **kwargs)
        # A layer draws no random numbers, and the generator's state is shared by all threads.
        return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


@functools.cache
def _compiled(kind: type[nn.Module]) -> Callable[..., Any]:
    """Compile once for all layers of a kind and all lengths: weights and sizes are inputs of the compiled code."""
    return torch.compile(kind.forward, dynamic=True)
