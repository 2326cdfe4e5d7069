"""What a loss says about itself: sums that add up over slices and ranks, and maxima.

Axes: T response tokens. A sum of zeros is left in, so every slice has the same keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ansatz.objectives.components import Component


def ratio_sums(log_ratio_T: Tensor, advantage_T: Tensor, factor_T: Tensor, surrogate: Component) -> dict[str, Tensor]:
    """tokens; ratio; clipped_low and clipped_high: tokens that the surrogate's range stops on the side that counts;
    approx_kl: -log ratio, the k1 estimate of KL(anchor || policy); dropped: tokens with correction 0."""
    log_ratio_T = log_ratio_T.detach()
    ratio_T = log_ratio_T.exp()
    low, high = (surrogate.settings.get(side) for side in ("low", "high"))
    never_T = torch.zeros_like(ratio_T, dtype=torch.bool)
    below_T = never_T if low is None else (ratio_T < 1 - low) & (advantage_T < 0)
    above_T = never_T if high is None else (ratio_T > 1 + high) & (advantage_T > 0)
    counts = {"clipped_low": below_T, "clipped_high": above_T, "dropped": factor_T == 0}
    return {
        "tokens": torch.ones_like(ratio_T).sum(),
        "ratio": ratio_T.sum(),
        "approx_kl": -log_ratio_T.sum(),
        **{name: hits_T.to(ratio_T.dtype).sum() for name, hits_T in counts.items()},
    }


def ratio_maxima(log_ratio_T: Tensor) -> dict[str, Tensor]:
    """ratio and log_ratio_abs; 0 for a slice without tokens."""
    log_ratio_T = log_ratio_T.detach()
    if len(log_ratio_T) == 0:
        return {"ratio": log_ratio_T.new_zeros(()), "log_ratio_abs": log_ratio_T.new_zeros(())}
    return {"ratio": log_ratio_T.exp().max(), "log_ratio_abs": log_ratio_T.abs().max()}
