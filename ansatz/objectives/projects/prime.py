"""prime-rl 0.8: rl loss and orchestrator advantages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansatz.errors import ConfigError

DEFAULTS: dict[str, Any] = {
    "algo": "grpo",
    "loss": {
        "type": "default",
        "dppo_mask_low": 0.2,
        "dppo_mask_high": 0.2,
        "ipo_threshold": 0.1,
        "adv_tau": 1.0,
        "kl_tau": 0.001,
    },
}


def spec(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """kl_tau (log-ratio)^2 is 2 kl_tau k2, held to the sampler's policy. No old log-probs at all."""
    loss = knobs["loss"]
    if loss["adv_tau"] != 1:
        raise ConfigError("prime-rl's adv_tau has no counterpart here; scale the learning rate and kl_coef instead.")
    bounds = {"low": loss["dppo_mask_low"], "high": loss["dppo_mask_high"], "sided": True}
    if loss["type"] == "ipo":
        bounds = {"low": loss["ipo_threshold"], "high": loss["ipo_threshold"], "sided": False}
    return {
        "advantage": {"name": "mean_ratio", "eps": 0.0} if knobs["algo"] == "max_rl" else "group_mean",
        "anchor": "behavior",
        "surrogate": "plain",
        "correction": {"name": "trust_region", "divergence": "tv", **bounds},
        "kl": "k2",
        "kl_to": "behavior",
        "kl_coef": 2 * loss["kl_tau"],
        "weights": "token_mean",
    }
