"""A base of 4 bits under low-rank adapters (Dettmers et al., QLoRA, arXiv:2305.14314), by the package bitsandbytes.

Each linear layer except the output embedding stores 4-bit NormalFloat values. A block of 64 of them shares a scale of 8
bits, and 256 scales share a float32 (double quantisation, sec. 3): 4.13 bits per weight. Every use of a layer computes
its weights in the compute type, uses them and drops them, and so does its backward pass. Sampling and training
therefore use the same weights.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ansatz.errors import ConfigError, MissingExtraError, ModelError, install_command

BLOCK, SCALE_BLOCK = 64, 256
"""Weights that share a scale, and scales that share a float32."""
TABLE_BYTES = 4 * (16 + 256)
"""Of the 16 values of NF4 and the 256 values of the scales, which all layers share."""
LEAST_ERROR = 0.08
"""Rounding changes normally distributed weights by 0.092 of their size, and weights with heavier tails by more. Weights
that it changes less were made from 4-bit values. Of a change of 2 % on top of such weights, 98 % is lost."""


def bitsandbytes(*, advice: str, extra: str) -> Any:
    """Import the package bitsandbytes. Raise MissingExtraError if it is not installed, with the advice, which the
    command that installs the extra follows. Quick enough for every layer of a forward pass."""
    logger = logging.getLogger("bitsandbytes")
    if logger.level != logging.ERROR:  # it warns about missing kernels for inference, which are not used here
        logger.setLevel(logging.ERROR)
    try:
        import bitsandbytes as package  # pyright: ignore[reportMissingTypeStubs, reportMissingImports]
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{advice} {install_command(extra)}") from error
    return package


def check_four_bit(*, has_adapters: bool) -> None:
    """Check the requirements of `model.quantize`, before a model is loaded.

    Raise ConfigError without adapters, and MissingExtraError without bitsandbytes.
    """
    if not has_adapters:
        raise ConfigError(
            "model.quantize = nf4: weights of 4 bits cannot be trained. Set model.lora as well, such as {rank: 16}, or "
            "leave model.quantize out."
        )
    _package()


def quantize_linears(model: nn.Module, *, head: nn.Module, path: str, device: torch.device) -> None:
    """Replace every linear layer except `head`, the output embedding, by one of 4 bits on `device`, in place.

    path: of the model, for messages.
    Raise ModelError, before anything has changed, if most weights are not in linear layers, if bitsandbytes does not
    support the device, or if the model was made from weights of 4 bits: rounding would undo the training on top of
    them.
    """
    linears = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.Linear) and module is not head
    }
    _check_share(model, linears, head=head, path=path)
    stored: dict[str, _Stored] = {}
    error = size = 0.0
    for name, linear in linears.items():
        weight = linear.weight.detach().to(device, torch.float32)
        stored[name] = _store(weight, path=path)
        error += float((stored[name].values() - weight).square().sum())
        size += float(weight.square().sum())
    if error < LEAST_ERROR**2 * size:
        raise ModelError(
            f"model.quantize = nf4: the weights of model.path = {path!r} are those of a 4-bit base with merged "
            "adapters, and rounding them again would undo what the adapters learned. Leave model.quantize out."
        )
    for name, linear in linears.items():
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, Linear4bit(linear, stored[name]))


def float_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the names of the weights of 4 bits with their values as new float32 tensors, one at a time."""
    for name, module in model.named_modules():
        if isinstance(module, Linear4bit):
            yield f"{name}.weight", module.weight


def num_four_bit(model: nn.Module) -> int:
    """Return the number of weights of 4 bits. They are not parameters of the model."""
    modules = (module for module in model.modules() if isinstance(module, Linear4bit))
    return sum(module.in_features * module.out_features for module in modules)


def stored_bytes(num_weights: int) -> int:
    """Return the bytes of a layer of 4-bit weights without `TABLE_BYTES`."""
    num_scales = -(-num_weights // BLOCK)
    return -(-num_weights // 2) + num_scales + 4 * -(-num_scales // SCALE_BLOCK) + 4


@dataclass(frozen=True, slots=True)
class _Stored:
    """Frozen weights [out, in], which copies of a model share. packed: two per byte. state: bitsandbytes' scales."""

    packed: Tensor
    state: Any
    shape: torch.Size

    def __deepcopy__(self, memo: dict[int, Any]) -> _Stored:
        return self

    def values(self) -> Tensor:
        return _package().functional.dequantize_4bit(self.packed, self.state).view(self.shape)


class _Product(torch.autograd.Function):
    """x W^T. It keeps the stored weights for the backward pass and not their values, which take eight times as much."""

    @staticmethod
    def forward(ctx: Any, x_I: Tensor, stored: _Stored) -> Tensor:
        ctx.stored = stored
        return nn.functional.linear(x_I, stored.values().to(x_I.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] @ ctx.stored.values().to(grads[0].dtype), None


class Linear4bit(nn.Linear):
    """A linear layer whose frozen weights are stored in 4 bits, on the device that quantised them."""

    def __init__(self, linear: nn.Linear, stored: _Stored) -> None:
        nn.Module.__init__(self)  # nn.Linear's would allocate the weights
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self.stored = stored

    @property
    def weight(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The values of the weights as a new float32 tensor."""
        return self.stored.values()

    def forward(self, input: Tensor) -> Tensor:
        product: Tensor = _Product.apply(input, self.stored)  # pyright: ignore[reportAssignmentType]
        return product if self.bias is None else product + self.bias


def _store(weight: Tensor, *, path: str) -> _Stored:
    functional = _package().functional
    # A row is a block. bitsandbytes 0.50.2 computes wrong values on CPUs with AVX-512 if a block reaches into a second
    # row, as it does for rows of 48 values.
    rows = weight.view(-1, BLOCK) if weight.numel() % BLOCK == 0 else weight.view(1, -1)
    try:
        packed, state = functional.quantize_4bit(
            rows, blocksize=BLOCK, compress_statistics=True, quant_type="nf4", quant_storage=torch.uint8
        )
    except (NotImplementedError, RuntimeError) as error:
        raise ModelError(
            f"model.quantize = nf4: bitsandbytes cannot quantise model.path = {path!r} on the device "
            f"{str(weight.device)!r} ({' '.join(str(error).split())[:120]}). Leave model.quantize out, or use a CPU or "
            "a CUDA GPU."
        ) from error
    state.code, state.state2.code = _tables(weight.device)
    return _Stored(packed, state, weight.shape)


@cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the 16 values of NF4, and the 256 of the scales. bitsandbytes would keep copies for every layer."""
    functional = _package().functional
    return functional.get_4bit_type("nf4", device=device), functional.create_dynamic_map().to(device)


def _check_share(model: nn.Module, linears: dict[str, nn.Linear], *, head: nn.Module, path: str) -> None:
    """Raise ModelError if less than half of the weights outside embeddings are in linear layers."""
    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding) or module is head]
    outside = {id(parameter) for module in embeddings for parameter in module.parameters()}
    total = sum(parameter.numel() for parameter in model.parameters() if id(parameter) not in outside)
    share = sum(linear.weight.numel() for linear in linears.values()) / max(total, 1)
    if share < 0.5:
        raise ModelError(
            f"model.quantize = nf4: only {share:.0%} of the weights of model.path = {path!r} outside its embeddings "
            "are in linear layers, and only those can have 4 bits (experts in one tensor cannot). Leave model.quantize "
            "out."
        )


def _package() -> Any:
    return bitsandbytes(
        advice="model.quantize = nf4 needs the package bitsandbytes, which is not installed. Leave model.quantize "
        "out, or install it with:",
        extra="qlora",
    )
