"""The reports of a loss besides its value: sums that add up over microbatches and ranks, and maxima.

Axes: T response tokens. Every microbatch reports the same keys, including sums that are 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def ratio_sums(log_ratio_T: Tensor, clipped_low_T: Tensor, clipped_high_T: Tensor) -> dict[str, Tensor]:
    """Sum measurements of ratios over tokens: tokens; ratio; clipped_low and clipped_high: tokens that a component
    clipped; approx_kl: -log ratio, the k1 estimate of KL(anchor || policy)."""
    log_ratio_T = log_ratio_T.detach()
    return {
        "tokens": torch.ones_like(log_ratio_T).sum(),
        "ratio": log_ratio_T.exp().sum(),
        "approx_kl": -log_ratio_T.sum(),
        "clipped_low": clipped_low_T.to(log_ratio_T.dtype).sum(),
        "clipped_high": clipped_high_T.to(log_ratio_T.dtype).sum(),
    }


def ratio_maxima(log_ratio_T: Tensor) -> dict[str, Tensor]:
    """Return the maxima of ratio and log_ratio_abs; 0 for a microbatch without tokens."""
    log_ratio_T = log_ratio_T.detach()
    if len(log_ratio_T) == 0:
        return {"ratio": log_ratio_T.new_zeros(()), "log_ratio_abs": log_ratio_T.new_zeros(())}
    return {"ratio": log_ratio_T.exp().max(), "log_ratio_abs": log_ratio_T.abs().max()}
