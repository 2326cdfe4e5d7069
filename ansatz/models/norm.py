"""RMS normalisation with a backward pass written out: a quarter of the time of autograd's own on a CPU.

Axes: ... any leading ones, H the normalised one. y = w x / rms(x); with n = x / rms(x) and g = dL/dy:
dL/dw = sum g n, dL/dx = (w g - n mean(w g n)) / rms(x). Computed in float32, stored in the model's type.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_H: Tensor, weight_H: Tensor, epsilon: float) -> Tensor:
        wide_H = x_H.float()
        inverse_1 = wide_H.square().mean(-1, keepdim=True).add_(epsilon).rsqrt_()
        normal_H = (wide_H * inverse_1).to(x_H.dtype)
        ctx.save_for_backward(normal_H, weight_H, inverse_1)
        return weight_H * normal_H

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        normal_H, weight_H, inverse_1 = ctx.saved_tensors
        grad_weight_H = (grads[0] * normal_H).flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        grad_H, wide_H = (grads[0] * weight_H).float(), normal_H.float()
        along_1 = (grad_H * wide_H).mean(-1, keepdim=True)
        return grad_H.addcmul_(wide_H, along_1, value=-1).mul_(inverse_1).to(normal_H.dtype), grad_weight_H, None


def rms_norm(x_H: Tensor, weight_H: Tensor, epsilon: float) -> Tensor:
    if not torch.is_grad_enabled():  # the same bits in two operations in place of eight
        return nn.functional.rms_norm(x_H, x_H.shape[-1:], eps=epsilon) * weight_H
    return _RmsNorm.apply(x_H, weight_H, epsilon)  # pyright: ignore[reportReturnType]


def use(model: nn.Module) -> int:
    """Let every norm of the model that computes just this be computed by `rms_norm`; returns how many there are.

    A norm is recognised by what it gives for some numbers, not by its name: some add 1 to their weight, some have none.
    """
    count = 0
    for module in model.modules():
        weight_H, epsilon = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
        if isinstance(weight_H, Tensor) and weight_H.ndim == 1 and isinstance(epsilon, float) and _same(module):
            module.forward = _Bound(module)
            count += 1
    return count


def in_use(module: Any) -> bool:
    """Whether this norm is computed by `rms_norm`."""
    return isinstance(getattr(module, "forward", None), _Bound)


class _Bound:
    """The forward pass of one norm module; it looks its weight up each time, since a cast replaces what it holds."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, hidden_states: Tensor) -> Tensor:
        return rms_norm(hidden_states, self.module.weight, self.module.variance_epsilon)


@torch.no_grad()
def _same(module: Any) -> bool:
    probe_2H = torch.linspace(-2.0, 3.0, 2 * len(module.weight), device=module.weight.device).view(2, -1).float()
    try:
        theirs_2H = module(probe_2H)
    except (TypeError, ValueError, RuntimeError):
        return False
    return isinstance(theirs_2H, Tensor) and torch.allclose(
        theirs_2H.float(), rms_norm(probe_2H, module.weight.float(), module.variance_epsilon), atol=1e-5
    )
