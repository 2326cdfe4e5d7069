"""AdamW whose masters, gradient sums and moments are in host memory. Only the compute weights stay on the device.

The gradients of each microbatch are copied to the host, and the new weights are copied back after the step. Each copy
moves as many bytes as the compute weights have. For a CUDA model the host memory is page-locked; without that, the bus
does not reach its full speed. The arithmetic is that of `MasterAdamW`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ansatz.train.optim import MasterAdamW

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
    """An empty host tensor of this shape, page-locked if `device` is a GPU. Torch reuses freed ones."""
    return torch.empty(value.shape, dtype=dtype, device=HOST, pin_memory=device.type == "cuda")
