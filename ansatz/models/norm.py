"""RMS normalization with a hand-written backward pass, which takes a quarter of autograd's time on a CPU.

Axes: H is the normalized axis, after any leading axes. y = w x / rms(x). With n = x / rms(x) and g = dL/dy:
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
    # The same bits in two operations instead of eight. On a GPU, torch's own backward pass is the faster one.
    if x_H.is_cuda or not torch.is_grad_enabled():
        return nn.functional.rms_norm(x_H, x_H.shape[-1:], eps=epsilon) * weight_H
    return _RmsNorm.apply(x_H, weight_H, epsilon)  # pyright: ignore[reportReturnType]


def install(model: nn.Module) -> int:
    """Compute every RMS norm of the model by `rms_norm`, and return how many there are.

    A norm is recognised by its output for some numbers, not by its name: some norms add 1 to their weight, and some
    have no weight.
    """
    count = 0
    for module in model.modules():
        weight_H, epsilon = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
        if isinstance(weight_H, Tensor) and weight_H.ndim == 1 and isinstance(epsilon, float) and _is_rms_norm(module):
            module.forward = _NormForward(module)
            count += 1
    return count


def is_installed(module: Any) -> bool:
    """Tell whether this norm is computed by `rms_norm`."""
    return isinstance(getattr(module, "forward", None), _NormForward)


class _NormForward:
    """The forward pass of one norm module. It looks up the weight at every call, because a cast replaces it."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, hidden_states: Tensor) -> Tensor:
        return rms_norm(hidden_states, self.module.weight, self.module.variance_epsilon)


@torch.no_grad()
def _is_rms_norm(module: Any) -> bool:
    probe_2H = torch.linspace(-2.0, 3.0, 2 * len(module.weight), device=module.weight.device).view(2, -1).float()
    try:
        out_2H = module(probe_2H)
    except (TypeError, ValueError, RuntimeError):
        return False
    return isinstance(out_2H, Tensor) and torch.allclose(
        out_2H.float(), rms_norm(probe_2H, module.weight.float(), module.variance_epsilon), atol=1e-5
    )
