"""Operations of a decoder layer in training: RMS norm, gate, and rotation of queries and keys.

On a CPU, each runs in one pass over memory: `layer_operations.cpp`. Its kernels give the bits of torch's operations,
and are compared with them at their type and size. Torch's own run where there is no compiler, where the bits differ
(on other processors, or with another version of torch), within compiled layers, and without gradients.

The norm has a hand-written backward pass, which takes a quarter of autograd's time also without kernels. With
n = x / rms(x), y = w n and g = dL/dy: dL/dw = sum g n, dL/dx = (w g - n mean(w g n)) / rms(x). It is computed in
float32 and stored in the model's type.

Axes: B rows, H heads, T tokens, D head size, X the last axis, after any others.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

from ansatz.models.compiled import TYPES, call, load_kernels

SOURCE = Path(__file__).with_suffix(".cpp")
_LANES = 8  # of the registers in which torch adds up
_ROTATION = "apply_rotary_pos_emb"
_Rotation = Callable[..., tuple[Tensor, Tensor]]


def install(model: nn.Module) -> None:
    """Compute RMS norms, gates and rotations of the model by the functions of this module.

    Norms and gates are recognised by their output for some numbers, not by their name: some norms add 1 to their
    weight, some have no weight, and gates differ in their activation.
    """
    is_gated = functools.cache(lambda kind: _is_gated(next(each for each in model.modules() if type(each) is kind)))
    for module in model.modules():
        if _is_rms_norm(module):
            module.forward = _NormForward(module)
        elif is_gated(type(module)):
            module.forward = _GatedForward(module)
        _replace_rotation(type(module).__module__)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_X: Tensor, weight_X: Tensor, epsilon: float) -> Tensor:
        ctx.in_kernel = can_take(x_X, weight_X) and _has_kernel(x_X.dtype, x_X.shape[-1])
        compute = normalise if ctx.in_kernel else _normalise
        out_X, normal_X, inverse_1 = compute(x_X, weight_X, epsilon)
        ctx.save_for_backward(weight_X, normal_X, inverse_1)
        return out_X

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        in_kernel = ctx.in_kernel and can_take(grads[0])
        compute = normalise_backward if in_kernel else _normalise_backward
        grad_X, product_X = compute(grads[0], *ctx.saved_tensors)
        return grad_X, product_X.flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None, None


def _normalise(x_X: Tensor, weight_X: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    wide_X = x_X.float()
    inverse_1 = wide_X.square().mean(-1, keepdim=True).add_(epsilon).rsqrt_()
    normal_X = (wide_X * inverse_1).to(x_X.dtype)
    return weight_X * normal_X, normal_X, inverse_1


def _normalise_backward(grad_X: Tensor, weight_X: Tensor, normal_X: Tensor, inverse_1: Tensor) -> tuple[Tensor, Tensor]:
    weighted_X, wide_X = (grad_X * weight_X).float(), normal_X.float()
    along_1 = (weighted_X * wide_X).mean(-1, keepdim=True)
    grad_x_X = weighted_X.addcmul_(wide_X, along_1, value=-1).mul_(inverse_1).to(normal_X.dtype)
    return grad_x_X, grad_X * normal_X


@functools.cache
def _has_kernel(dtype: torch.dtype, size: int) -> bool:
    """Tell whether the kernels have torch's bits for rows of this size. Torch adds up the shortest rows in another
    order."""
    if size < _LANES:
        return False
    x_9X, grad_9X = (some_numbers(9, size, dtype=dtype, seed=seed) for seed in (0, 7))
    weight_X = some_numbers(size, dtype=dtype, seed=1)

    def compute(forward: Callable[..., Any], backward: Callable[..., Any]) -> tuple[Tensor, ...]:
        out_9X, *saved = forward(x_9X, weight_X, 1e-6)
        return (out_9X, *saved, *backward(grad_9X, weight_X, *saved))

    return have_same_bits(
        lambda: compute(_normalise, _normalise_backward), lambda: compute(normalise, normalise_backward)
    )


def rms_norm(x_X: Tensor, weight_X: Tensor, epsilon: float) -> Tensor:
    # The same bits in two operations instead of eight. On a GPU, torch's own backward pass is the faster one.
    if x_X.is_cuda or not torch.is_grad_enabled():
        return nn.functional.rms_norm(x_X, x_X.shape[-1:], eps=epsilon) * weight_X
    return _RmsNorm.apply(x_X, weight_X, epsilon)  # pyright: ignore[reportReturnType]


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
    weight_X, epsilon = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
    if not (isinstance(weight_X, Tensor) and weight_X.ndim == 1 and isinstance(epsilon, float)):
        return False
    probe_2X = torch.linspace(-2.0, 3.0, 2 * len(weight_X), device=weight_X.device).view(2, -1).float()
    try:
        out_2X = module(probe_2X)
    except (TypeError, ValueError, RuntimeError):
        return False
    expected_2X = rms_norm(probe_2X, weight_X.float(), epsilon)
    return isinstance(out_2X, Tensor) and torch.allclose(out_2X.float(), expected_2X, atol=1e-5)


def _is_gated(module: Any) -> bool:
    """Tell whether a module computes down(silu(gate(x)) * up(x)), on a CPU."""
    weight = getattr(getattr(module, "gate_proj", None), "weight", None)
    if not isinstance(weight, Tensor) or weight.device.type != "cpu" or not weight.is_floating_point():
        return False
    probe_2X = some_numbers(2, weight.shape[-1], dtype=weight.dtype)
    try:
        with torch.no_grad():
            expected_2X = module.down_proj(nn.functional.silu(module.gate_proj(probe_2X)) * module.up_proj(probe_2X))
            return torch.equal(module(probe_2X), expected_2X)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return False


class _GatedForward:
    """The forward pass of one gated layer. It looks up the parts at every call, because adapters replace them."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, hidden_X: Tensor) -> Tensor:
        gate_X, up_X = self.module.gate_proj(hidden_X), self.module.up_proj(hidden_X)
        return self.module.down_proj(_gate(gate_X, up_X))


def _gate(gate_X: Tensor, up_X: Tensor) -> Tensor:
    in_kernel = torch.is_grad_enabled() and can_take(gate_X, up_X) and _has_even_shares(gate_X.numel())
    if in_kernel and _has_gate_kernel(gate_X.dtype):
        return _Gate.apply(gate_X, up_X)  # pyright: ignore[reportReturnType]
    return nn.functional.silu(gate_X) * up_X


def _has_even_shares(size: int) -> bool:
    """Tell whether each thread of torch computes whole registers: it takes another exponential for numbers beyond
    them."""
    threads = torch.get_num_threads()
    return size % (64 * threads) == 0 and (threads == 1 or size >= 2**15 * threads)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_X: Tensor, up_X: Tensor) -> Tensor:
        ctx.save_for_backward(gate_X, up_X)
        return gate(gate_X, up_X)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return gate_backward(grads[0].contiguous(), *ctx.saved_tensors)


@functools.cache
def _has_gate_kernel(dtype: torch.dtype) -> bool:
    """Tell whether the kernels have torch's bits: for every bfloat16, also as a float32."""
    every = torch.arange(2**16).to(torch.int16).view(torch.bfloat16)
    gate_X = every[every.isfinite()].to(dtype)
    gate_X = torch.cat((gate_X, some_numbers(len(gate_X), dtype=dtype)))
    up_X, grad_X = (some_numbers(len(gate_X), dtype=dtype, seed=seed) for seed in (1, 7))
    return have_same_bits(
        lambda: _with_gradients(lambda *inputs: nn.functional.silu(inputs[0]) * inputs[1], grad_X, gate_X, up_X),
        lambda: (gate(gate_X, up_X), *gate_backward(grad_X, gate_X, up_X)),
    )


def _replace_rotation(module_name: str) -> None:
    """Let the function of a module of transformers that rotates queries and keys use the kernel."""
    module = sys.modules[module_name]
    original = getattr(module, _ROTATION, None)
    if module_name.startswith("transformers.") and original is not None and not isinstance(original, _RotateBoth):
        setattr(module, _ROTATION, _RotateBoth(original))


class _RotateBoth:
    """Rotates queries and keys [B, H, T, D], with the arguments of transformers' function. cos, sin: [B, T, D]."""

    def __init__(self, original: _Rotation) -> None:
        self.original = original

    def __call__(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
        rows_of_both = q.transpose(1, 2), k.transpose(1, 2)
        fits = not args and not kwargs and torch.is_grad_enabled() and cos.shape == sin.shape
        fits = fits and all(rows.shape[:2] + rows.shape[3:] == cos.shape for rows in rows_of_both)
        fits = fits and can_take(*rows_of_both, cos, sin)
        if fits and _has_rotation_kernel(self.original, q.dtype, q.shape[-1]):
            return tuple(_Rotate.apply(rows, cos, sin).transpose(1, 2) for rows in rows_of_both)  # pyright: ignore
        return self.original(q, k, cos, sin, *args, **kwargs)


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BTHD: Tensor, cosine_BTD: Tensor, sine_BTD: Tensor) -> Tensor:
        ctx.save_for_backward(cosine_BTD, sine_BTD)
        return rotate(x_BTHD, cosine_BTD, sine_BTD, back=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return rotate(grads[0].contiguous(), *ctx.saved_tensors, back=True), None, None


@functools.cache
def _has_rotation_kernel(original: _Rotation, dtype: torch.dtype, size: int) -> bool:
    x_BTHD, grad_BTHD = (some_numbers(2, 5, 3, size, dtype=dtype, seed=seed) for seed in (0, 7))
    cosine_BTD, sine_BTD = (some_numbers(2, 5, size, dtype=dtype, seed=seed) for seed in (1, 8))

    def rotate_by_torch(rows_BTHD: Tensor) -> Tensor:
        x_BHTD = rows_BTHD.transpose(1, 2)
        return original(x_BHTD, x_BHTD[:, :1], cosine_BTD, sine_BTD)[0].transpose(1, 2)

    inputs = (x_BTHD, False), (grad_BTHD, True)
    return have_same_bits(
        lambda: _with_gradients(rotate_by_torch, grad_BTHD, x_BTHD),
        lambda: tuple(rotate(rows, cosine_BTD, sine_BTD, back=back) for rows, back in inputs),
    )


def _with_gradients(function: Callable[..., Tensor], grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return function(*inputs) and the gradients of the inputs.

    A self-test can be met first within a checkpointed layer. Without hooks of its own, its tensors would be kept among
    the layer's, whose number would then differ when the layer is computed again.
    """
    with torch.enable_grad(), saved_tensors_hooks(_keep, _keep):
        leaves = [each.clone().requires_grad_() for each in inputs]
        out = function(*leaves)
        return out.detach(), *torch.autograd.grad(out, leaves, grad)


def _keep(value: Tensor) -> Tensor:
    return value


@functools.cache
def library() -> ctypes.CDLL | None:
    """Load the compiled kernels; None if this machine has no compiler that makes them."""
    return load_kernels(SOURCE, "-ffp-contract=off")


def can_take(*tensors: Tensor) -> bool:
    """Tell whether the kernels can compute with these tensors: plain ones of one type on a CPU, row by row."""
    if torch.compiler.is_compiling():
        return False
    are_plain = all(type(each) in (Tensor, nn.Parameter) and each.is_contiguous() for each in tensors)
    kinds = {(each.device.type, each.dtype) for each in tensors}
    return are_plain and len(kinds) == 1 and tensors[0].device.type == "cpu" and tensors[0].dtype in TYPES


def have_same_bits(by_torch: Callable[[], tuple[Tensor, ...]], in_kernels: Callable[[], tuple[Tensor, ...]]) -> bool:
    """Tell whether there are kernels and both functions compute the same numbers, without gradient."""
    if library() is None:
        return False
    with torch.no_grad():
        return all(map(torch.equal, by_torch(), in_kernels()))


def some_numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Return numbers of both signs around 1 for a comparison, without a random generator."""
    count = torch.Size(shape).numel()
    return (torch.arange(1 + seed, 1 + seed + count) * 12.9898).sin().mul_(3).view(shape).to(dtype)


def normalise(x_X: Tensor, weight_X: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return weight * normal, normal = x / rms(x), and 1 / rms(x) in float32."""
    out_X, normal_X = torch.empty_like(x_X), torch.empty_like(x_X)
    inverse_1 = x_X.new_empty(*x_X.shape[:-1], 1, dtype=torch.float32)
    call(library(), "normalise", x_X, x_X, weight_X, normal_X, out_X, inverse_1, epsilon, *_rows(x_X))
    return out_X, normal_X, inverse_1


def normalise_backward(grad_X: Tensor, weight_X: Tensor, normal_X: Tensor, inverse_1: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of x, and grad * normal, whose sum over the rows is the gradient of the weight."""
    grad_x_X, product_X = torch.empty_like(grad_X), torch.empty_like(grad_X)
    tensors = grad_X, weight_X, normal_X, inverse_1, grad_x_X, product_X
    call(library(), "normalise_backward", grad_X, *tensors, *_rows(grad_X))
    return grad_x_X, product_X


def rotate(x_BTHD: Tensor, cosine_BTD: Tensor, sine_BTD: Tensor, *, back: bool) -> Tensor:
    """Rotate the two halves of each vector by the angles of its token. back: compute the gradient of x from the
    gradient of the result."""
    out_BTHD = torch.empty_like(x_BTHD)
    sizes = x_BTHD.shape[:2].numel(), *x_BTHD.shape[2:]
    call(library(), "rotate", x_BTHD, x_BTHD, cosine_BTD, sine_BTD, out_BTHD, int(back), *sizes)
    return out_BTHD


def gate(gate_X: Tensor, up_X: Tensor) -> Tensor:
    """Return silu(gate) * up."""
    out_X = torch.empty_like(gate_X)
    call(library(), "gate", gate_X, gate_X, up_X, out_X, gate_X.numel())
    return out_X


def gate_backward(grad_X: Tensor, gate_X: Tensor, up_X: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of gate and up."""
    grad_gate_X, grad_up_X = torch.empty_like(grad_X), torch.empty_like(grad_X)
    call(library(), "gate_backward", grad_X, grad_X, gate_X, up_X, grad_gate_X, grad_up_X, grad_X.numel())
    return grad_gate_X, grad_up_X


def _rows(x_X: Tensor) -> Any:
    return x_X.numel() // max(x_X.shape[-1], 1), x_X.shape[-1]
