"""Masks: which response tokens count at all. What a mask takes out leaves the denominators of the weights too.

Axes: N rollouts, T response tokens; each gives True where a token stays.
"""

from __future__ import annotations

from torch import Tensor

from ansatz.objectives.pieces import Function, formula
from ansatz.registry import Registry

MASKS: Registry[Function] = Registry("mask")


@MASKS.register("not_truncated", "overlong", "mask_truncated")
@formula("rollouts that hit the length limit are left out of the loss (their rewards stay in the group)")
def not_truncated(segment_T: Tensor, truncated_N: Tensor) -> Tensor:
    """Overlong filtering (DAPO, arXiv:2503.14476 sec. 3.4): a response that was cut off is neither right nor wrong."""
    return ~truncated_N.bool()[segment_T]
