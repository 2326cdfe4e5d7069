"""The critic's loss. Axes: T response tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from ansatz.objectives.components import Function, formula
from ansatz.registry import Registry

VALUES: Registry[Function] = Registry("value")


@VALUES.register("squared_error", "clipped")
@formula(
    "{coef} x {scale} x (V - return)^2",
    notes={"clip": ", or the same with V within {clip} of its old value where that is larger"},
)
def squared_error(
    value_T: Tensor,
    old_value_T: Tensor,
    return_T: Tensor,
    *,
    coef: float = 1.0,
    scale: float = 0.5,
    clip: float | None = 0.2,
) -> Tensor:
    """coef x scale x max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) (PPO2; arXiv:2005.12729).

    clip None: no clipping. The return R carries no gradient.
    """
    error_T = (value_T - return_T).square()
    if clip is not None:
        near_T = torch.maximum(torch.minimum(value_T, old_value_T + clip), old_value_T - clip)
        error_T = torch.maximum(error_T, (near_T - return_T).square())
    return coef * scale * error_T
