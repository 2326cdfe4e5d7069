"""The optimizers that `train.optimizer` can name. docs/memory.md counts the bytes of each.

Two of them need less memory than `MasterAdamW`, the base of all. `adamw_8bit` uses bitsandbytes' block-wise quantised
moments of 8 bits (Dettmers et al., arXiv:2110.02861). A block of 256 values of a moment shares one scale, and each
value is the index of one of 256 levels. The moments then take 2 x 1.016 bytes per parameter instead of 8; masters and
gradient sums stay float32. Parameters of fewer than 4096 values (norms) keep float32 moments, as in the paper.

`adamw_offload` keeps masters, gradient sums and moments in host memory. The gradients of each microbatch are copied to
the host, and the new weights are copied back after the step. Each copy is as large as the compute weights.
For a CUDA model the host memory is page-locked; without that, the bus does not reach its full speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ansatz.config.fields import FractionBelowOne, Rate
from ansatz.models.four_bit import bitsandbytes
from ansatz.registry import Registry, check_result
from ansatz.train.optim import MasterAdamW, moments_of_8_bits

OPTIMIZERS: Registry[Callable[..., MasterAdamW]] = Registry("train.optimizer")
"""Functions of (model, dtype) whose keyword-only parameters are the settings of the optimizer."""

Betas = tuple[FractionBelowOne, FractionBelowOne]


def bind_optimizer(settings: Mapping[str, Any]) -> Callable[[Any, torch.dtype], MasterAdamW]:
    """Return the function of (model, compute type) that builds the optimizer of {name: NAME, ...settings}.

    Raise ConfigError for an unknown name or setting, and MissingExtraError if its package is not installed.
    """
    name = settings.get("name", "adamw")
    if name == "adamw_8bit":
        package()
    build = OPTIMIZERS.bind(name, {key: value for key, value in settings.items() if key != "name"})

    def checked(model: Any, dtype: torch.dtype) -> MasterAdamW:
        optimizer: Any = build(model, dtype)
        is_right = isinstance(optimizer, MasterAdamW)
        check_result(build, optimizer, is_right=lambda: is_right, expected="an ansatz.train.optim.MasterAdamW")
        return optimizer

    return checked


@OPTIMIZERS.register()
def adamw(model: Any, dtype: torch.dtype, *, betas: Betas = (0.9, 0.99), weight_decay: Rate = 0.0) -> MasterAdamW:
    """Masters, gradient sums and both moments are float32, all on the device of the model.

    betas: decay rates of the two moments. weight_decay: fraction of a weight that is subtracted per step, times the
    learning rate.
    """
    return MasterAdamW(model, dtype=dtype, betas=betas, weight_decay=weight_decay)


@OPTIMIZERS.register()
def adamw_8bit(model: Any, dtype: torch.dtype, *, betas: Betas = (0.9, 0.99), weight_decay: Rate = 0.0) -> MasterAdamW:
    """Masters and gradient sums are float32; both moments are quantised to 8 bits."""
    return Adam8bit(model, dtype=dtype, betas=betas, weight_decay=weight_decay)


@OPTIMIZERS.register()
def adamw_offload(
    model: Any, dtype: torch.dtype, *, betas: Betas = (0.9, 0.99), weight_decay: Rate = 0.0
) -> MasterAdamW:
    """Like adamw, but in host memory: the device holds the compute weights and the gradients of one microbatch."""
    return OffloadedAdamW(model, dtype=dtype, betas=betas, weight_decay=weight_decay)


LEVELS = {"qmap1": "dynamic", "qmap2": "udynamic"}
"""The two tables of levels, which all parameters share: key in the state of a parameter -> name in bitsandbytes."""


class Adam8bit(MasterAdamW):
    """Its state of a parameter is (state1, absmax1) and (state2, absmax2): indices of levels and scales of blocks."""

    def _adam(self, masters: list[Tensor], *, betas: tuple[float, float], weight_decay: float) -> torch.optim.Optimizer:
        return package().optim.AdamW8bit(masters, betas=betas, weight_decay=weight_decay)

    def _moments(self, state: dict[str, Any]) -> dict[str, Tensor]:
        stored = {kind: value for kind, value in state.items() if kind not in LEVELS}
        return {**stored, "step": torch.tensor(stored["step"])} if stored else {}

    def converted(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return moments_of_8_bits(state)

    def _from_moments(self, moments: dict[str, Tensor]) -> dict[str, Any]:
        levels: dict[str, Tensor] = self.adam.name2qmap  # pyright: ignore[reportAttributeAccessIssue]
        device = moments["state1"].device
        quantised = moments["state1"].dtype == torch.uint8
        tables = {key: levels[name].to(device) for key, name in LEVELS.items()} if quantised else {}
        return {**moments, **tables, "step": int(moments["step"])}


def package() -> Any:
    """Return the package bitsandbytes. Raise MissingExtraError if it is not installed."""
    return bitsandbytes(
        advice="train.optimizer = adamw_8bit needs the package bitsandbytes, which is not installed. Use "
        "adamw_offload, which needs no package, or install it with:",
        extra="adamw8bit",
    )


HOST = torch.device("cpu")


class OffloadedAdamW(MasterAdamW):
    """Gives the bits of `MasterAdamW` for a model on a CPU. For one on a GPU, AdamW is computed on the CPU."""

    def _master(self, parameter: Tensor, dtype: torch.dtype) -> Tensor:
        master = _host_tensor_like(parameter, dtype=torch.float32, device=parameter.device)
        return master.copy_(parameter.detach()).requires_grad_()

    def _to_master_device(self, gradient: Tensor) -> Tensor:
        return _host_tensor_like(gradient, dtype=gradient.dtype, device=gradient.device).copy_(gradient)

    def write_back(self) -> None:
        """Write the masters into the model. They are cast on the host, which halves the traffic for bfloat16."""
        for name, parameter in self.model_params.items():
            cast = _host_tensor_like(parameter, dtype=parameter.dtype, device=parameter.device)
            parameter.data.copy_(cast.copy_(self.masters[name].data))


def _host_tensor_like(value: Tensor, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an empty host tensor of this shape, page-locked if `device` is a GPU. Torch reuses freed ones."""
    return torch.empty(value.shape, dtype=dtype, device=HOST, pin_memory=device.type == "cuda")
