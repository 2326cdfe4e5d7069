"""AdamW over float32 master weights, whatever type the model computes in.

The gradients of each microbatch are added to float32 sums (`accumulate`), so splitting a batch loses no precision. A
step updates the masters and writes them back into the model. For a float32 model, the masters are the parameters
themselves. Only parameters that require a gradient have masters, sums and moments. `train.optimizers` has variants that
need less memory.

When a run's optimizer is changed, the moments are converted between float32 and 8 bits. A state is flat, as a
checkpoint holds it: "KIND/NAME" with the name of a parameter. The kinds of moments in float32 are exp_avg and
exp_avg_sq; in 8 bits they are state1 and state2, with their scales absmax1 and absmax2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ansatz.config.schema import DecaySection
from ansatz.errors import CheckpointError, NonFiniteError
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
        "it with:",
        extra="adamw8bit",
    )
    import bitsandbytes.functional as functional  # pyright: ignore[reportMissingImports]

    return functional


class MasterAdamW:
    """AdamW (Loshchilov and Hutter, arXiv:1711.05101) for a transformers model held in `dtype`.

    Casts the model's parameters to dtype in place; buffers keep their type. The float32 values of trained parameters
    are kept here, but no values of frozen ones.
    Example: `optimizer.accumulate(optimizer.gradients(loss))`, then `optimizer.step(lr=1e-3, max_grad_norm=1.0)`.
    """

    def __init__(self, model: Any, *, dtype: torch.dtype, betas: tuple[float, float], weight_decay: float) -> None:
        parameters: dict[str, Tensor] = dict(model.named_parameters())
        self.model_params = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
        self.masters = {name: self._master(parameter, dtype) for name, parameter in self.model_params.items()}
        for parameter in parameters.values():
            parameter.data = parameter.data.to(dtype)
        self.changes = 0  # grows before each change of the masters
        self.adam = self._adam(list(self.masters.values()), betas=betas, weight_decay=weight_decay)

    def _master(self, parameter: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the float32 master of a parameter that will be held in dtype."""
        return parameter if dtype == torch.float32 else parameter.detach().float().clone().requires_grad_()

    def _adam(self, masters: list[Tensor], *, betas: tuple[float, float], weight_decay: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(masters, betas=betas, weight_decay=weight_decay, fused=True)

    def gradients(self, loss: Tensor) -> list[Tensor | None]:
        """Compute the gradients of a microbatch's loss by parameter, in the model's type; None for an unused one.

        Several threads can call this at once, because it changes nothing.
        """
        return list(torch.autograd.grad(loss, list(self.model_params.values()), allow_unused=True))

    def accumulate(self, gradients: Sequence[Tensor | None]) -> None:
        """Add the gradients of one microbatch to the sums."""
        for master, gradient in zip(self.masters.values(), gradients, strict=True):
            if gradient is None:
                continue
            gradient = self._to_master_device(gradient)
            if master.grad is None:
                master.grad = gradient.float()
            else:
                master.grad += gradient

    def _to_master_device(self, gradient: Tensor) -> Tensor:
        """Return the gradient of a microbatch, on the device of the masters."""
        return gradient

    def gradient_norm(self) -> float:
        """Return the norm of the accumulated gradients. If it is nan or inf, remove them and raise NonFiniteError."""
        norm = float(torch.nn.utils.get_total_norm(self._sums()))
        if not math.isfinite(norm):
            self.zero_grad()
            raise NonFiniteError(f"the gradient norm is {norm}")
        return norm

    def _sums(self) -> list[Tensor]:
        return [master.grad for master in self.masters.values() if master.grad is not None]

    def step(self, *, lr: float, max_grad_norm: float) -> float:
        """Update with the accumulated gradients, clipped to max_grad_norm (0: not). Return the norm before clipping.

        Raise NonFiniteError, before anything has changed, if the norm is nan or inf.
        """
        norm = self.gradient_norm()
        if 0 < max_grad_norm < norm:
            for grad in self._sums():
                grad.mul_(max_grad_norm / norm)
        self.changes += 1
        self.adam.param_groups[0]["lr"] = lr
        self.adam.step()
        self.zero_grad()
        self.write_back()
        return norm

    def zero_grad(self) -> None:
        for master in self.masters.values():
            master.grad = None

    def write_back(self) -> None:
        """Write the masters into the model."""
        for name, parameter in self.model_params.items():
            if self.masters[name] is not parameter:
                parameter.data.copy_(self.masters[name].data)

    def weights(self) -> dict[str, Tensor]:
        """Return the float32 weights by parameter name."""
        return {name: master.detach() for name, master in self.masters.items()}

    def state(self) -> dict[str, Tensor]:
        """Return Adam's moments and step counts as a flat dict: "exp_avg/NAME" etc. Empty before the first step."""
        return {
            f"{kind}/{name}": value.detach()
            for name, master in self.masters.items()
            for kind, value in self._moments(self.adam.state[master]).items()
        }

    def _moments(self, state: dict[str, Any]) -> dict[str, Tensor]:
        """Select the part of a parameter's state in `adam` that a checkpoint stores."""
        return state

    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Load the results of `weights` and `state`, bit for bit. Moments in another form are converted.

        Raise CheckpointError, before anything has changed, if they belong to another model.
        """
        moments = dict[str, dict[str, Tensor]]()
        for key, value in self.converted(state).items():
            kind, name = key.split("/", 1)
            moments.setdefault(name, {})[kind] = value
        misfits = {
            name for name, master in self.masters.items() if name not in weights or weights[name].shape != master.shape
        }
        misfits |= moments.keys() - self.masters.keys()
        if misfits:
            raise CheckpointError(
                f"the checkpoint belongs to another model: {len(misfits)} of its weights do not fit, such as "
                f"{min(misfits)}. Resume with the model and the model.lora settings of the run that wrote it."
            )
        with torch.no_grad():
            for name, master in self.masters.items():
                master.copy_(weights[name])
        self.adam.state.clear()
        for name, stored in moments.items():
            master = self.masters[name]
            copies = {kind: value.to(master.device, copy=True) for kind, value in stored.items()}
            self.adam.state[master] = self._from_moments(copies)
        self.write_back()

    def converted(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert the moments of a state to the form of this optimizer."""
        return float_moments(state)

    def _from_moments(self, moments: dict[str, Tensor]) -> dict[str, Any]:
        """Invert `_moments`."""
        return moments  # pyright: ignore[reportReturnType]


def mask_gradients(masters: Mapping[str, Tensor], written: Mapping[str, Tensor]) -> None:
    """Set the summed gradients of the values that `Policy.written` excludes to 0."""
    for name, mask in written.items():
        if (gradient := masters[name].grad) is not None:
            gradient.mul_(mask.to(gradient.device))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The learning rate by step (from 1): a linear rise over warmup_steps to lr, then constant, then a fall over the
    last decay_steps of total_steps. The fall would reach `floor`, a fraction of lr, at the step after the last.

    shape: linear, or cosine: half a period, as in SGDR (arXiv:1608.03983, eq. 5).
    Example: `Schedule(lr=1e-3, warmup_steps=9).multiplier(5)` is 0.5.
    """

    lr: float
    warmup_steps: int = 0
    decay_steps: int = 0
    total_steps: int = 0
    shape: str = "linear"
    floor: float = 0.0

    @classmethod
    def of(cls, stage: Any, decay: DecaySection) -> Schedule:
        """Return the schedule of a stage. stage: its section, with the keys of a `ScheduleSection`."""
        steps = {"warmup_steps": stage.warmup_steps, "decay_steps": stage.decay_steps, "total_steps": stage.steps}
        return cls(lr=stage.lr, **steps, **decay.model_dump())

    def multiplier(self, step: int, *, waited: int = 0) -> float:
        """Return the fraction of the full learning rate at a step, in 0..1. waited: steps before the rise begins."""
        rise = (step - waited) / (self.warmup_steps + 1)
        left = min(1.0, (self.total_steps + 1 - step) / (self.decay_steps + 1)) if self.decay_steps else 1.0
        if self.shape == "cosine":
            left = (1.0 - math.cos(math.pi * left)) / 2
        return max(0.0, min(1.0, rise, self.floor + (1.0 - self.floor) * left))
