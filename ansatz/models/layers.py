"""How a decoder layer is run where gradients are wanted: computed again in the backward pass, compiled, or both.

Sampling and log-probs without gradient run as ever. transformers' own `gradient_checkpointing_enable` does not serve
here: it acts in training mode alone, which would switch dropout on, and takes the cache away from a model that samples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from ansatz.errors import ConfigError, ModelError
from ansatz.models.load import Policy


def configure_layers(policy: Policy, *, checkpointing: bool = False, compiled: bool = False) -> None:
    """Make the policy's decoder layers run so, in place; copies of the model keep it.

    checkpointing: of a layer only its input is kept for the backward pass; the gradients are the same bits. compiled:
    by torch.compile, on the first use of each kind of layer; numbers differ by rounding. Raises ModelError for a model
    whose layers cannot be told, ConfigError where compiled slices would run side by side.
    """
    if not checkpointing and not compiled:
        return
    if compiled and policy.parallel_microbatches > 1:
        raise ConfigError(
            "model.compile = true: on a CPU slices run side by side in threads, which torch.compile does not bear. "
            "Set threads: 1, or leave it out."
        )
    layers = [module for module in policy.model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(
            f"model.path = {policy.path!r}: transformers marks no layers of {type(policy.model).__name__} for gradient "
            "checkpointing. Leave out model.checkpointing and model.compile."
        )
    for layer in layers:
        layer.forward = _Layer(layer, checkpointing=checkpointing, compiled=compiled)


class _Layer:
    """The forward pass of one layer. It holds the module alone, so a copy of the model has copies that are its own."""

    def __init__(self, module: nn.Module, *, checkpointing: bool, compiled: bool) -> None:
        self.module, self.checkpointing, self.compiled = module, checkpointing, compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kind = type(self.module)
        if not torch.is_grad_enabled():
            return kind.forward(self.module, *args, **kwargs)
        run = functools.partial(_compiled(kind) if self.compiled else kind.forward, self.module)
        if not self.checkpointing:
            return run(*args, **kwargs)
        # Nothing in a layer draws random numbers, and the generator's state is not a thread's own.
        return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


@functools.cache
def _compiled(kind: type[nn.Module]) -> Callable[..., Any]:
    """One for all layers of a kind and all lengths: weights and sizes are inputs of the compiled code."""
    return torch.compile(kind.forward, dynamic=True)
