"""AdamW whose masters, gradient sums and moments lie in host memory; on the device stay the compute weights.

A slice's gradients go to the host once it is done, and the new weights come back after the step: twice the bytes of the
compute weights for each, over the bus. Host memory is page-locked for a CUDA model, which the bus needs for its full
speed. Nothing about the arithmetic differs from `MasterAdamW`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ansatz.train.optim import MasterAdamW

HOST = torch.device("cpu")


class OffloadedAdamW(MasterAdamW):
    """The same numbers as `MasterAdamW` of a model on a CPU; of one on a GPU as AdamW of the CPU computes them."""

    def _master(self, parameter: Tensor, dtype: torch.dtype) -> Tensor:
        own = _locked_like(parameter, dtype=torch.float32, device=parameter.device)
        return own.copy_(parameter.detach()).requires_grad_()

    def _to_master_device(self, gradient: Tensor) -> Tensor:
        return _locked_like(gradient, dtype=gradient.dtype, device=gradient.device).copy_(gradient)

    def write_back(self) -> None:
        """Write the masters into the model, cast on the host: half the bytes on the bus, no float32 on the device."""
        for name, parameter in self.model_params.items():
            cast = _locked_like(parameter, dtype=parameter.dtype, device=parameter.device)
            parameter.data.copy_(cast.copy_(self.masters[name].data))


def _locked_like(value: Tensor, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """An empty host tensor of that shape, page-locked where `device` is a GPU; torch keeps freed ones for reuse."""
    return torch.empty(value.shape, dtype=dtype, device=HOST, pin_memory=device.type == "cuda")
